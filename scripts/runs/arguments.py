"""The arguments of `qkv runs`, as those of other commands in scripts/arguments.py."""

from argparse import ArgumentParser
from pathlib import Path


def runs(parser: ArgumentParser) -> None:
    """List runs and compare them: steps, metrics, minutes, and the fields in which they differ.

    All runs in and below the folders are listed, the newest first, also those that are training. With --out their
    losses and metrics by step are drawn in one figure.

    Example: qkv runs runs --out runs.svg
    """
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="runs, or folders of runs (runs)")
    parser.add_argument("--last", type=int, metavar="N", help="only the newest N")
    parser.add_argument("--out", type=Path, metavar="FILE", help="draw the figure: .svg, .png or .pdf")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what is listed to a file, too")
