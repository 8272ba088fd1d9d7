"""Predict with a model for a text, a file, a folder or a table, row by row in their order."""

import sys
from argparse import Namespace
from typing import Any

from qkv.scripts.common.phases import phase, say
from qkv.scripts.data.pieces import InvalidRecord
from qkv.scripts.prediction.inputs import Table, read_input
from qkv.scripts.prediction.outputs import check_out, show, write_table
from qkv.scripts.prediction.predictor import check_options, predictions, reader_of
from qkv.scripts.prediction.source import Source, open_source
from qkv.scripts.training.progress import progress_display

ERROR = "error"  # the column that says why a row has no prediction


def run(arguments: Namespace) -> None:
    """Predict, and write the rows with their predictions to a table, or print them."""
    if arguments.input is None:
        raise ValueError("give an input: a text between quotation marks, a file, a folder or a table")
    check_out(arguments.out, arguments.input)
    source = open_source(arguments.source, arguments.revision, trust_remote_code=arguments.trust_remote_code)
    check_options(source, arguments.options)
    table = read_input(arguments.input, source, arguments.options)
    reader_of(table, source, arguments.options)
    check_columns(table)
    with phase(f"loading {source.name}"):
        _ = source.model
    columns = predict_table(table, source, arguments.options)
    if arguments.out is None:
        fit = [*table.columns[:2], *(name for name in columns if name not in table.columns)]
        show(fit if sys.stdout.isatty() else columns, table.rows, hint="--out predictions.csv writes all")
        return
    write_table(arguments.out, columns, table.rows, table.path)
    say(f"{len(table.rows):,} rows with their predictions are in {arguments.out}")


def check_columns(table: Table) -> None:
    """Raise ValueError where a column of the input would be overwritten."""
    for name in ("prediction", ERROR):
        if name in table.columns:
            raise ValueError(
                f"{table.path} has a column {name!r} already, which predictions are written to; rename it in the file"
            )


def predict_table(table: Table, source: Source, options: dict[str, Any]) -> list[str]:
    """Add the predictions to the rows of a table, and return all columns; ValueError where no row can be used."""
    bad: list[str] = []
    new: list[str] = []
    with progress_display("rows", len(table.rows), is_main=len(table.rows) > 1, unit="row") as progress:
        for number, answer in enumerate(predictions(table, source, options)):
            if isinstance(answer, InvalidRecord):
                bad.append(f"row {number + 1}: {answer}")
            row = {ERROR: str(answer)} if isinstance(answer, InvalidRecord) else answer
            # A table may have scores of its own.
            row = {f"prediction_{name}" if name in table.columns else name: value for name, value in row.items()}
            table.rows[number] |= row
            new += [name for name in row if name not in new]
            progress.update(number + 1, "")
    if len(bad) == len(table.rows):
        raise ValueError(f"nothing can be predicted: {bad[0]}")
    if bad:
        say(f"{len(bad)} of {len(table.rows)} rows have no prediction; the column {ERROR!r} says why; first {bad[0]}")
    return [*table.columns, *sorted(new, key=lambda name: name == ERROR)]
