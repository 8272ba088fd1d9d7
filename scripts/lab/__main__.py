"""Measure and prove the package, in a checkout: `python -m qkv.scripts.lab COMMAND`."""

import sys
from collections.abc import Sequence

from qkv.scripts import cli
from qkv.scripts.lab.arguments import LAB


def main(words: Sequence[str] | None = None) -> int:
    """Run the command that the words name, and return its exit status."""
    return cli.main(words, LAB)


if __name__ == "__main__":
    sys.exit(main())
