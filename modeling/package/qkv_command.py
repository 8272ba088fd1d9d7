"""The `qkv` command, which imports the models, for seconds, only once the words say that they are needed."""

starting = False


def main() -> int:
    """Run the command that the words name, and return its exit status."""
    global starting
    starting = True
    from qkv.scripts import cli

    return cli.main()
