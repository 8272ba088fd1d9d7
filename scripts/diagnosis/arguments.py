"""The arguments of `qkv doctor`, as those of other commands in scripts/arguments.py."""

from argparse import ArgumentParser
from pathlib import Path


def doctor(parser: ArgumentParser) -> None:
    """Show versions, devices, attention backends, caches and extras, and what is slow or broken and why.

    Rates of matrix products and of reading memory are measured here, in a few seconds; nothing is fetched. Each finding
    says how to mend it. The exit status is 0 unless something is broken.

    Example: qkv doctor --json doctor.json
    """
    parser.add_argument("--quick", action="store_true", help="measure nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything to a file, too")
