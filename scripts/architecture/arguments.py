"""The arguments of `qkv show`, as those of other commands in scripts/arguments.py."""

from argparse import ArgumentParser
from pathlib import Path

DEPTH = 5


def show(parser: ArgumentParser) -> None:
    """Show the architecture of a model: its modules with shapes, parameters and FLOPs, memory, and a figure.

    SOURCE is a preset, a recipe, a run folder, a model folder or a Hub id, of qkv or an official checkpoint that it
    converts. Only the config is read, so that a model of any size is shown in seconds.

    Example: qkv show bert_base position=rope --out bert.svg
    """
    parser.add_argument("source", metavar="SOURCE", help="whose model is shown")
    help = "a field of the config, or of the recipe; not of an official checkpoint"
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help=help)
    parser.add_argument("--length", type=int, metavar="N", help="tokens of a text (up to 1024)")
    parser.add_argument("--depth", type=int, default=DEPTH, metavar="N", help=f"levels of the tree ({DEPTH})")
    parser.add_argument("--revision", help="of a Hub id: a branch, tag or commit")
    parser.add_argument("--out", type=Path, metavar="FILE", help="draw the model: .svg")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file, too")
