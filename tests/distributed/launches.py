"""What `accelerate launch` understands of our config files."""

from argparse import Namespace

from accelerate.commands.launch import _validate_launch_command, launch_command_parser

from checkout import ROOT

CONFIGS = ROOT / "scripts" / "accelerate"


def launched(name: str, *words: str) -> Namespace:
    """The settings of a launch with a config file and words beside it."""
    found = launch_command_parser().parse_args(
        ["--config_file", str(CONFIGS / name), *words, "scripts/train.py", "digits"]
    )
    return _validate_launch_command(found)[0]
