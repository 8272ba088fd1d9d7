"""Write rows and their predictions to a table of any form."""

import csv
import json
import pickle
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from os import SEEK_END
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from qkv.scripts.common.files import replacing_file
from qkv.scripts.common.words import either
from qkv.scripts.data.examples import Record
from qkv.scripts.prediction.inputs import Rows

ROWS = 1000  # in memory at a time, and in a row group of parquet


class StoredRows(Sequence[Record]):
    """Rows in a temporary file: those of a large table do not fit into memory."""

    def __init__(self, file: Any = None, places: Sequence[int] = ()) -> None:
        self.file = file or TemporaryFile()
        self.places = array("q", places)
        self.marks: dict[str, Sequence[Any]] = {}  # further columns

    def append(self, row: Record) -> None:
        """Write a row."""
        self.places.append(self.file.seek(0, SEEK_END))
        pickle.dump(row, self.file)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, number: Any) -> Any:
        self.file.seek(self.places[number])
        return pickle.load(self.file) | {name: column[number] for name, column in self.marks.items()}

    def chosen(self, numbers: Iterable[int]) -> "StoredRows":
        """Return some of the rows."""
        return StoredRows(self.file, [self.places[number] for number in numbers])


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


def write_table(path: Path, columns: Sequence[str], rows: Rows, origin: Path | None = None) -> None:
    """Write rows one by one in the form of the file's ending; columns of a parquet `origin` keep their types."""
    with replacing_file(path) as made, made.open("w", encoding="utf-8", newline="") as file:
        WRITERS[path.suffix.lower()](file, columns, rows, origin)


def write_delimited(file: TextIO, columns: Sequence[str], rows: Rows, origin: Any = None, mark: str = ",") -> None:
    """Write rows as a table of text."""
    writer = csv.writer(file, delimiter=mark, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell(row.get(name)) for name in columns] for row in rows())


def cell(value: Any) -> str:
    """Return a value in a table of text: numbers to the last digit, lists and objects as JSON, stored files by name."""
    if isinstance(value, dict) and isinstance(value.get("bytes"), bytes):
        value = value.get("path")
    return value if isinstance(value, str) else "" if value is None else as_json(value)


def as_json(value: Any) -> str:
    """Return a value as JSON; dates as texts, and of files in a table their names alone."""
    return json.dumps(value, ensure_ascii=False, default=lambda other: None if isinstance(other, bytes) else str(other))


def write_lines(file: TextIO, columns: Sequence[str], rows: Rows, origin: Path | None = None) -> None:
    """Write rows as JSON Lines."""
    file.writelines(as_json({name: row.get(name) for name in columns}) + "\n" for row in rows())


def write_list(file: TextIO, columns: Sequence[str], rows: Rows, origin: Path | None = None) -> None:
    """Write rows as a JSON list, all of them at once."""
    file.write(as_json([{name: row.get(name) for name in columns} for row in rows()]) + "\n")


def write_parquet(file: TextIO, columns: Sequence[str], rows: Rows, origin: Path | None = None) -> None:
    """Write rows as parquet, with the types of the columns of a parquet `origin`; columns of mixed types as texts."""
    is_stored = origin is not None and origin.suffix.lower() == ".parquet"
    types = {field.name: field.type for field in pq.read_schema(origin)} if is_stored else {}
    types |= types_of([name for name in columns if name not in types], rows)
    texts = [name for name in columns if types[name] == pa.string()]
    with pq.ParquetWriter(file.buffer, pa.schema([(name, types[name]) for name in columns])) as writer:
        for values in parts(columns, rows):
            values |= {name: [None if each is None else cell(each) for each in values[name]] for name in texts}
            writer.write_table(pa.table(values, writer.schema))


def types_of(columns: Sequence[str], rows: Rows) -> dict[str, Any]:
    """Return the types of columns; text for values of several types, or integers that are no floats beside floats."""
    types = dict.fromkeys(columns, pa.null())
    for known in ({}, types):  # the first reading finds types, the second values that do not fit
        for name, values in (column for part in parts(columns, rows) for column in part.items()):
            try:
                both = [pa.schema([(name, kind)]) for kind in (types[name], pa.array(values, known.get(name)).type)]
                types[name] = pa.unify_schemas(both, promote_options="permissive").field(name).type
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
                types[name] = pa.string()
    return types


def parts(columns: Sequence[str], rows: Rows) -> Iterator[dict[str, list[Any]]]:
    """Yield the values of columns, of some rows at a time."""
    left = iter(rows())
    while part := list(islice(left, ROWS)):
        yield {name: [row.get(name) for row in part] for name in columns}


WRITERS: dict[str, Callable[..., None]] = {
    ".csv": write_delimited, ".tsv": partial(write_delimited, mark="\t"), ".jsonl": write_lines,
    ".ndjson": write_lines, ".json": write_list, ".parquet": write_parquet,
}  # fmt: skip
