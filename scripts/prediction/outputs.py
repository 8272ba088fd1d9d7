"""Write rows and their predictions to a table of any form."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from qkv.scripts.common.files import write_atomically
from qkv.scripts.common.words import either
from qkv.scripts.data.examples import Record


def check_out(path: Path | None, given: str | None = None) -> None:
    """Raise ValueError for a file that cannot be written, before anything is computed for it."""
    if path is None:
        return
    if path.suffix.lower() not in WRITERS or path.is_dir():
        raise ValueError(f"--out {path} is no table that is written; its name must end in {either(list(WRITERS))}")
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent} for --out; make it first: mkdir -p {path.parent}")
    if given is not None and path.exists() and Path(given).exists() and path.samefile(given):
        raise ValueError(f"--out {path} is the input itself; name another file, so that nothing of it is lost")


def write_table(path: Path, columns: Sequence[str], rows: Sequence[Record], origin: Path | None = None) -> None:
    """Write rows in the form of the file's ending, at once; columns of a parquet `origin` keep their types."""
    write_atomically(path, WRITERS[path.suffix.lower()](columns, rows, origin))


def as_delimited(columns: Sequence[str], rows: Sequence[Record], origin: Path | None = None, mark: str = ",") -> str:
    """Return rows as a table of text."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=mark, lineterminator="\n")
    writer.writerows([columns, *([cell(row.get(name)) for name in columns] for row in rows)])
    return text.getvalue()


def cell(value: Any) -> str:
    """Return a value in a table of text: numbers to the last digit, lists and objects as JSON, stored files by name."""
    if isinstance(value, dict) and isinstance(value.get("bytes"), bytes):
        value = value.get("path")
    return value if isinstance(value, str) else "" if value is None else as_json(value)


def as_json(value: Any) -> str:
    """Return a value as JSON; dates as texts, and of files in a table their names alone."""
    return json.dumps(value, ensure_ascii=False, default=lambda other: None if isinstance(other, bytes) else str(other))


def as_lines(columns: Sequence[str], rows: Sequence[Record], origin: Path | None = None) -> str:
    """Return rows as JSON Lines."""
    return "".join(as_json({name: row.get(name) for name in columns}) + "\n" for row in rows)


def as_list(columns: Sequence[str], rows: Sequence[Record], origin: Path | None = None) -> str:
    """Return rows as a JSON list."""
    return as_json([{name: row.get(name) for name in columns} for row in rows]) + "\n"


def as_parquet(columns: Sequence[str], rows: Sequence[Record], origin: Path | None = None) -> bytes:
    """Return rows as parquet, with the types of the columns of a parquet `origin`; columns of mixed types as texts."""
    kept = pq.read_table(origin) if origin is not None and origin.suffix.lower() == ".parquet" else pa.table({})
    arrays = {name: kept[name] for name in columns if name in kept.column_names}
    for name in (name for name in columns if name not in arrays):
        values = [row.get(name) for row in rows]
        try:
            arrays[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            arrays[name] = pa.array([None if value is None else cell(value) for value in values])
    with io.BytesIO() as file:
        pq.write_table(pa.table({name: arrays[name] for name in columns}), file)
        return file.getvalue()


WRITERS: dict[str, Callable[..., str | bytes]] = {
    ".csv": as_delimited, ".tsv": partial(as_delimited, mark="\t"), ".jsonl": as_lines, ".ndjson": as_lines,
    ".json": as_list, ".parquet": as_parquet,
}  # fmt: skip
