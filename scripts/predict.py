"""Predict with a model for a text, a file, a folder or a table, row by row in their order."""

import sys
from argparse import Namespace

from tqdm import tqdm

from qkv.scripts.common.phases import phase, say
from qkv.scripts.common.words import either
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.prediction.inputs import Table, read_input
from qkv.scripts.prediction.outputs import as_delimited, check_out, write_table
from qkv.scripts.prediction.predictor import choices, predictions, reader_of
from qkv.scripts.prediction.source import Source, open_source

ERROR = "error"  # the column that says why a row has no prediction


def run(arguments: Namespace) -> None:
    """Predict, and write the rows with their predictions to a table, or print them."""
    predict_table(arguments, *prepare(arguments))


def prepare(arguments: Namespace, tasks: tuple[str, ...] = ()) -> tuple[Source, Table]:
    """Open a model of one of these tasks, and its input; ValueError for mistakes, before the model is loaded."""
    options = arguments.options
    if arguments.input is None:
        raise ValueError("give an input: a text between quotation marks, a file, a folder or a table")
    check_out(arguments.out, arguments.input)
    trusted, task = arguments.trust_remote_code, options.get("task")
    source = open_source(arguments.source, arguments.revision, trust_remote_code=trusted, task=task)
    if tasks and source.task not in tasks:
        raise ValueError(
            f"{source.name} is for {source.task}, and generate for {either(tasks)}; its answers come from "
            f"qkv predict {source.name} INPUT"
        )
    if source.task == "zero-shot-image-classification":
        choices(source, options)
    if useless := [key for key in ("image", "audio", "text") if key in options and key != source.medium]:
        raise ValueError(f"{useless[0]}= is not for {source.task}, which takes {source.medium}=COLUMN")
    table = read_input(arguments.input, source, options)
    reader_of(table, source, options)
    for name in {"prediction", ERROR} & set(table.columns):
        raise ValueError(f"{table.path} has a column {name!r}, which predictions are written to; rename it in the file")
    with phase(f"loading {source.name}"):
        _ = source.model
    return source, table


def predict_table(arguments: Namespace, source: Source, table: Table) -> None:
    """Write the rows of a table with their predictions, or print them; ValueError where no row can be used."""
    bad: list[str] = []
    new: dict[str, None] = {}
    answers = predictions(table, source, arguments.options)
    for number, answer in enumerate(tqdm(answers, total=len(table.rows), unit="row", disable=None, leave=False)):
        if isinstance(answer, InvalidRecord):
            table.rows[number][ERROR] = str(answer)
            bad.append(f"row {number + 1}: {answer}")
            continue
        # A table may have scores of its own.
        row = {f"prediction_{name}" if name in table.columns else name: value for name, value in answer.items()}
        table.rows[number] |= row
        new |= dict.fromkeys(row)
    if len(bad) == len(table.rows):
        raise ValueError(f"nothing can be predicted: {bad[0]}")
    if bad:
        new[ERROR] = None
        say(f"{len(bad)} of {len(table.rows)} rows have no prediction; the column {ERROR!r} says why; first {bad[0]}")
    if arguments.out is None:
        sys.stdout.write(as_delimited([*table.columns, *new], table.rows))
    else:
        write_table(arguments.out, [*table.columns, *new], table.rows, table.path)
        say(f"{len(table.rows):,} rows with their predictions are in {arguments.out}")
