"""The arguments of commands that use a model, for the list of all commands."""

from argparse import ArgumentParser
from pathlib import Path

from qkv.scripts.prediction.options import listed


def predict(parser: ArgumentParser) -> None:
    """Predict with a trained model for a text, a file, a folder or a table.

    SOURCE is a run, a model folder or a Hub id. INPUT is a text between quotation marks, a picture or recording, a
    folder of these, or a table (CSV, TSV, JSONL, JSON, parquet), whose rows come out in their order with the columns
    `prediction` and `score`; `-` reads lines. Rows that cannot be used say why in a column `error`.

    Example: qkv predict runs/reviews reviews.csv --out predictions.csv
    """
    add_source(parser, "predict")
    parser.add_argument("--out", type=Path, metavar="TABLE", help="write the rows there, in the form of its ending")


def add_source(parser: ArgumentParser, command: str) -> None:
    """Add a model, its input and the options of a command that uses both."""
    parser.add_argument("source", metavar="SOURCE", help="a run, a model folder or a Hub id")
    parser.add_argument(
        "given", nargs="*", metavar="INPUT key=value", help=f"the input, and options: {listed(command)}"
    )
    parser.add_argument("--revision", help="of a Hub id: a branch, tag or commit")
    parser.add_argument("--trust-remote-code", action="store_true", help="run the code of a model")
