"""The arguments of `qkv attend`, as those of other commands in scripts/arguments.py."""

from argparse import ArgumentParser
from pathlib import Path

from qkv.scripts.prediction.arguments import add_source

FORMATS = ("html", "png", "svg")


def attend(parser: ArgumentParser) -> None:
    """Show which tokens attend to which in a model for one input, as a page or a figure.

    SOURCE is a run, a model folder or a Hub id. INPUT is that of `qkv predict`, of a table one row; a second text is
    the other of a pair, the caption of an image, or the output of a model that writes texts. The page is one file
    without network: matrices of layers and heads, tokens with lines between them, patches of a picture, spectrograms,
    boxes, alignments, the steps of generation, entropy and distance of every head.

    Example: qkv attend runs/translate "twenty-one" --out attention.html
    """
    add_source(parser, "attend")
    parser.add_argument("--format", choices=FORMATS, help="format of the file (as --out ends, or html)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page or figure (attention.html)")
