"""Predict with a model for a text, a file, a folder or a table, row by row in their order."""

import sys
from argparse import Namespace
from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import Any

from tqdm import tqdm

from qkv.scripts.common.files import full_disk_named
from qkv.scripts.common.phases import phase, say
from qkv.scripts.common.words import either
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.prediction.inputs import Table, read_input
from qkv.scripts.prediction.outputs import StoredRows, check_out, write_delimited, write_table
from qkv.scripts.prediction.predictor import choices, predictions, reader_of
from qkv.scripts.prediction.source import FOLDS, Source, open_source
from qkv.scripts.prediction.structures import in_files

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
    if source.task == FOLDS and arguments.out and (folder := arguments.out.with_suffix("")).exists():
        raise ValueError(f"{folder} is there, where structures are written beside --out {arguments.out}; name another")
    table = read_input(arguments.input, source, options)
    reader_of(table, source, options)
    for name in {"prediction", ERROR} & set(table.columns):
        raise ValueError(f"{table.path} has a column {name!r}, which predictions are written to; rename it in the file")
    with phase(f"loading {source.name}"):
        _ = source.model
    return source, table


def predict_table(arguments: Namespace, source: Source, table: Table) -> None:
    """Write the rows of a table with their predictions, or print them; ValueError where no row can be used."""
    out, answers = arguments.out, predictions(table, source, arguments.options)
    if out and source.task == FOLDS:
        answers = in_files(answers, out.with_suffix(""))
    # Until the last row has said which columns there are, rows wait in a file, as they may be more than fit in memory.
    with full_disk_named(out), TemporaryFile(dir=out and out.parent) as file:
        rows = StoredRows(file)
        columns = [*table.columns, *keep_predictions(rows, table, answers)]
        if out is None:
            write_delimited(sys.stdout, columns, lambda: rows)
        else:
            write_table(out, columns, lambda: rows, table.path)
            say(f"{table.count:,} rows with their predictions are in {out}")


def keep_predictions(rows: StoredRows, table: Table, answers: Iterator[tuple[Any, Any]]) -> list[str]:
    """Store rows with their predictions; return the new columns, ValueError where none is."""
    bad, first, new = 0, "", dict[str, None]()
    for number, (row, answer) in enumerate(tqdm(answers, total=table.count, unit="row", disable=None, leave=False)):
        if isinstance(answer, InvalidRecord):
            bad, first = bad + 1, first or f"row {number + 1}: {answer}"
            own = {ERROR: str(answer)}
        else:  # a table may have scores of its own
            own = {f"prediction_{name}" if name in table.columns else name: value for name, value in answer.items()}
            new |= dict.fromkeys(own)
        rows.append(own if isinstance(row, InvalidRecord) else row | own)
    if not new:
        raise ValueError(f"nothing can be predicted: {first}")
    if bad:
        new[ERROR] = None
        say(f"{bad} of {table.count} rows have no prediction; the column {ERROR!r} says why; first {first}")
    return list(new)
