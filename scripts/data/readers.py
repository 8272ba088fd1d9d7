"""How does a file become records? Thin readers of JSONL, CSV, text, parquet and pictures that say which row is bad.

datasets' own readers give up a whole file for one bad line. These yield every row with its file and number, and for a
row that cannot be read what is wrong with it. A file is read in pieces of some megabytes, so that several can read it
and a reader can go on in its middle.
"""

import csv
import json
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Record = dict[str, Any]
# Bytes of a piece.
PIECE = 2**22
# A document may stand in a cell, and csv's own limit is 128 KiB.
csv.field_size_limit(2**31 - 1)
PICTURES = (".png", ".jpg", ".jpeg")
# Where a record is from, and what is wrong with it. `_row` counts from 1, from the byte `_begin` of the file on.
ORIGIN = {"_file": "string", "_begin": "int64", "_row": "int64", "_fault": "string"}


@dataclass(frozen=True)
class Piece:
    """A part of a file: bytes of text from `begin` to `end`, row groups of parquet, or whole files.

    `stamp` is the file's size and time of change, so that what was made of an older one is not taken for its content.
    """

    path: str
    begin: int
    end: int
    stamp: tuple[int, int]
    documents: str = "line"
    label: int | None = None


class Fault(Exception):
    """What is wrong with one record, in a few words."""


class Cell(str):
    """A value of a CSV file, which may be a number."""


# A row of a piece: its number there, and its values or what is wrong with it.
Row = tuple[int, "Record | Fault"]


def stamp(path: Path) -> tuple[int, int]:
    """What tells a file from a changed one."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def whole(path: Path, documents: str) -> list[Piece]:
    """A file in one piece."""
    return [Piece(str(path), 0, path.stat().st_size, stamp(path), documents)]


def by_lines(path: Path, documents: str) -> list[Piece]:
    """A file of lines, or of paragraphs between blank lines, cut where one ends."""
    size, cuts = path.stat().st_size, [0]
    with path.open("rb") as file:
        while documents != "file" and cuts[-1] + PIECE < size:
            # From the byte before on, for a line may begin right there.
            file.seek(cuts[-1] + PIECE - 1)
            file.readline()
            while documents == "paragraph" and file.readline().strip():
                pass
            cuts.append(file.tell())
    ends = [*cuts[1:], size]
    pieces = [Piece(str(path), begin, end, stamp(path), documents) for begin, end in zip(cuts, ends, strict=True)]
    return [piece for piece in pieces if piece.begin < piece.end] or pieces[:1]


def lines(piece: Piece) -> Iterator[tuple[int, bytes]]:
    """The lines of a piece and their numbers."""
    with open(piece.path, "rb") as file:
        file.seek(piece.begin)
        left = piece.end - piece.begin
        for number, line in enumerate(file, start=1):
            if left <= 0:
                return
            left -= len(line)
            # Some editors mark the beginning of a file.
            yield number, line.removeprefix(BOM_UTF8) if piece.begin == 0 and number == 1 else line


def decoded(data: bytes) -> str:
    """Text in UTF-8; Fault where it is something else."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Fault(f"not UTF-8 from its byte {error.start} on") from None


def json_object(line: bytes) -> Record:
    """The JSON object of a line; Fault where there is none."""
    try:
        found = json.loads(decoded(line))
    except (ValueError, RecursionError) as error:
        raise Fault(f"not JSON: {getattr(error, 'msg', error)}") from None
    if not isinstance(found, dict):
        raise Fault(f"a JSON {type(found).__name__}, not an object")
    return found


def attempt(make: Callable[[bytes], Record], data: bytes) -> "Record | Fault":
    """What is made of the data, or what is wrong with it."""
    try:
        return make(data)
    except Fault as fault:
        return fault


def jsonl(piece: Piece) -> Iterator[Row]:
    """An object in each line; blank lines are no records."""
    for number, line in lines(piece):
        if line.strip():
            yield number, attempt(json_object, line)


def paragraphs(piece: Piece) -> Iterator[tuple[int, bytes]]:
    """What stands between blank lines, with the number of its first line."""
    first, gathered = 0, list[bytes]()
    for number, line in lines(piece):
        if line.strip():
            first = first if gathered else number
            gathered.append(line)
        elif gathered:
            yield first, b"".join(gathered)
            gathered = []
    if gathered:
        yield first, b"".join(gathered)


def text(piece: Piece) -> Iterator[Row]:
    """Documents of plain text: lines, paragraphs, or the file."""
    if piece.documents == "file":
        found: Iterator[tuple[int, bytes]] = iter([(1, Path(piece.path).read_bytes())])
    else:
        found = paragraphs(piece) if piece.documents == "paragraph" else lines(piece)
    for number, data in found:
        if data.strip() or piece.documents == "file":
            yield number, attempt(lambda data: {"text": decoded(data).rstrip("\r\n")}, data)


def table(piece: Piece) -> Iterator[Row]:
    """A CSV file with a header; rows are numbered by the line they end on."""
    with open(piece.path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        while True:
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield reader.line_num, Fault(f"not CSV: {error}")
                continue
            yield reader.line_num, cells(row)


def cells(row: Record) -> "Record | Fault":
    """A row of a CSV file."""
    if None in row or None in row.values():
        return Fault("more or fewer fields than the header")
    try:
        return {name: Cell(decoded(value.encode(errors="surrogateescape"))) for name, value in row.items()}
    except Fault as fault:
        return fault


def number(value: str) -> int | float | str:
    """The number that a text spells, or the text."""
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            pass
    return str(value)


def row_groups(path: Path, documents: str) -> list[Piece]:
    """A parquet file by its row groups; ValueError where its end, which says what it holds, is missing."""
    try:
        count = pq.ParquetFile(path).num_row_groups
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is no whole parquet file ({error}); make or fetch it again") from None
    return [Piece(str(path), group, group + 1, stamp(path)) for group in range(count)]


def parquet(piece: Piece) -> Iterator[Row]:
    """The rows of a row group; where it is damaged, each of them is bad."""
    file = pq.ParquetFile(piece.path)
    sizes = [file.metadata.row_group(group).num_rows for group in range(piece.end)]
    first, size, done = sum(sizes[:-1]) + 1, sizes[-1], 0
    try:
        for batch in file.iter_batches(1000, row_groups=[piece.begin]):
            yield from enumerate(batch.to_pylist(), first + done)
            done += len(batch)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        yield from ((row, Fault(f"damaged parquet: {reason}")) for row in range(first + done, first + size))


def pictures(piece: Piece) -> Iterator[Row]:
    """A picture, which is read when it is looked at."""
    label = {} if piece.label is None else {"label": piece.label}
    yield 1, {"image": {"path": piece.path, "bytes": None}, **label}


@dataclass(frozen=True)
class Format:
    """How files of a kind are cut, and how a piece of them is read."""

    cut: Callable[[Path, str], list[Piece]]
    rows: Callable[[Piece], Iterator[Row]]


LINES = Format(lambda path, documents: by_lines(path, "line"), jsonl)
FORMATS = {
    ".jsonl": LINES,
    ".ndjson": LINES,
    ".txt": Format(by_lines, text),
    ".csv": Format(whole, table),
    ".parquet": Format(row_groups, parquet),
    **dict.fromkeys(PICTURES, Format(whole, pictures)),
}


def rows_of(piece: Piece) -> Iterator[Row]:
    """The rows of a piece of any format."""
    return format_of(piece.path).rows(piece)


def format_of(path: str) -> Format:
    """How a file of that name is read."""
    return FORMATS[Path(path).suffix.lower()]


@cache
def line_before(path: str, begin: int) -> int:
    """How many lines of a file end before that byte."""
    left, found = begin, 0
    with open(path, "rb") as file:
        while left and (block := file.read(min(left, 2**24))):
            found += block.count(b"\n")
            left -= len(block)
    return found
