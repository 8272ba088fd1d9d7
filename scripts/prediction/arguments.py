"""The arguments of commands that use a model, for the list of all commands."""

from argparse import ArgumentParser
from pathlib import Path

from qkv.scripts.prediction.options import OPTIONS


def predict(parser: ArgumentParser) -> None:
    """Predict with a trained model for a text, a file, a folder or a table.

    SOURCE is a run, a model folder or a Hub id. INPUT is a text between quotation marks, a picture or recording, a
    folder of these, or a table (CSV, TSV, JSONL, JSON, parquet), whose rows come out in their order with the columns
    `prediction` and `score`; `-` reads lines. Rows that cannot be used say why in a column `error`.

    Example: qkv predict runs/reviews reviews.csv --out predictions.csv
    """
    add_source(parser, "predict")
    parser.add_argument("--out", type=Path, metavar="TABLE", help="write the rows there, in the form of its ending")


def generate(parser: ArgumentParser) -> None:
    """Generate text after a prompt, with a language model or an encoder-decoder.

    INPUT is a prompt between quotation marks, whose text is printed, token by token on a terminal, or a table, whose
    rows come out with the texts in a column `prediction`. Decoding is greedy without `temperature`, `top_k` and
    `top_p`, unless the model samples by itself.

    Example: qkv generate runs/tales "Once upon a time" temperature=0.8 max_new_tokens=60
    """
    add_source(parser, "generate")
    parser.add_argument("--out", type=Path, metavar="TABLE", help="write the rows there, in the form of its ending")


def evaluate(parser: ArgumentParser) -> None:
    """Evaluate a trained model on the test split of its run, or on a table.

    Metrics are printed with 95 % intervals, from a bootstrap over rows. A folder gets them as a record, every row with
    its prediction, loss and score, and for classes a confusion matrix. `--against` adds the differences to another
    model on the same rows, with their intervals.

    Example: qkv evaluate runs/reviews new-reviews.csv label=opinion --out evaluation
    """
    add_source(parser, "evaluate")
    parser.add_argument("--against", metavar="OTHER", help="a model to compare with on the same rows")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="a folder that is new or empty")


def add_source(parser: ArgumentParser, command: str) -> None:
    """Add a model, its input and the options of a command that uses both."""
    listed = "; ".join(f"{key}= {meaning}" for key, meaning in OPTIONS[command].items())
    parser.add_argument("source", metavar="SOURCE", help="a run, a model folder or a Hub id")
    parser.add_argument("given", nargs="*", metavar="INPUT key=value", help=f"the input, and options: {listed}")
    parser.add_argument("--revision", help="of a Hub id: a branch, tag or commit")
    parser.add_argument("--trust-remote-code", action="store_true", help="run the code of a model")
