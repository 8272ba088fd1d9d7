"""Readers of JSONL, CSV, text, parquet and images that yield every row with its number, and say which row is invalid.

They stay beside those of `datasets`, whose json, csv and parquet builders give up the whole file for one bad line and
keep neither file nor row. Files are read in pieces of some megabytes, so that several processes can share one and a
stream can resume in its middle.
"""

import csv
import json
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from qkv.scripts.data.examples import Record

PIECE_BYTES = 2**22
# A document may stand in a cell, and csv's own limit is 128 KiB.
csv.field_size_limit(2**31 - 1)
IMAGES = (".png", ".jpg", ".jpeg")
# Where a record is from, and what is wrong with it. `_row` counts from 1, from the byte `_begin` of the file on.
ORIGIN = {"_file": "string", "_begin": "int64", "_row": "int64", "_invalid": "string"}


@dataclass(frozen=True)
class Piece:
    """A part of a file: the bytes of text from `begin` to `end`, row groups of parquet, or a whole file.

    `stamp` is the file's size and time of change, so that a cache made of an older one is not taken for its content.
    """

    path: str
    begin: int
    end: int
    stamp: tuple[int, int]
    documents: str = "line"
    label: int | None = None


class InvalidRecord(Exception):
    """The reason why one record is invalid, in a few words."""


class Cell(str):
    """A value of a CSV file, which may be a number."""


# The number of a row in its piece, and its values or what is wrong with it.
Row = tuple[int, Record | InvalidRecord]


def cut_lines(path: Path, documents: str) -> list[int]:
    """Return where to cut a file of lines, or of paragraphs between blank lines: where one ends."""
    size, cuts = path.stat().st_size, [0]
    with path.open("rb") as file:
        while documents != "file" and cuts[-1] + PIECE_BYTES < size:
            # From the byte before on, for a line may begin right there.
            file.seek(cuts[-1] + PIECE_BYTES - 1)
            file.readline()
            while documents == "paragraph" and file.readline().strip():
                pass
            cuts.append(file.tell())
    return cuts if cuts[-1] == size > 0 else [*cuts, size]


def cut_row_groups(path: Path, documents: str) -> list[int]:
    """Return the numbers of a parquet file's row groups, and their end; ValueError where its footer is missing."""
    try:
        return list(range(pq.ParquetFile(path).num_row_groups + 1))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is no whole parquet file ({error}); make or fetch it again") from None


def lines(piece: Piece) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a piece with their numbers."""
    with open(piece.path, "rb") as file:
        file.seek(piece.begin)
        left = piece.end - piece.begin
        for number, line in enumerate(file, start=1):
            if left <= 0:
                return
            left -= len(line)
            # Some editors mark the beginning of a file.
            yield number, line.removeprefix(BOM_UTF8) if piece.begin == 0 and number == 1 else line


def paragraphs(piece: Piece) -> Iterator[tuple[int, bytes]]:
    """Yield what stands between blank lines, with the number of its first line."""
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


def decode(data: bytes) -> str:
    """Decode UTF-8; InvalidRecord for anything else."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRecord(f"not UTF-8 from its byte {error.start} on") from None


def parse_json(line: bytes) -> Record:
    """Parse the JSON object of a line; InvalidRecord where there is none."""
    try:
        value = json.loads(decode(line))
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"not JSON: {getattr(error, 'msg', error)}") from None
    if not isinstance(value, dict):
        raise InvalidRecord(f"a JSON {type(value).__name__}, not an object")
    return value


def attempt(make: Callable[[], Record]) -> Record | InvalidRecord:
    """Return a record, or what is wrong with it."""
    try:
        return make()
    except InvalidRecord as error:
        return error


def read_jsonl(piece: Piece) -> Iterator[Row]:
    """Read an object from each line; blank lines are no records."""
    for number, line in lines(piece):
        if line.strip():
            yield number, attempt(partial(parse_json, line))


def read_text(piece: Piece) -> Iterator[Row]:
    """Read documents of plain text: lines, paragraphs, or the file."""
    if piece.documents == "file":
        documents: Iterator[tuple[int, bytes]] = iter([(1, Path(piece.path).read_bytes())])
    else:
        documents = paragraphs(piece) if piece.documents == "paragraph" else lines(piece)
    for number, data in documents:
        if data.strip() or piece.documents == "file":
            yield number, attempt(lambda data=data: {"text": decode(data).rstrip("\r\n")})  # type: ignore[misc]


def read_csv(piece: Piece) -> Iterator[Row]:
    """Read a CSV file with a header; rows are numbered by the line they end on."""
    with open(piece.path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        while True:
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield reader.line_num, InvalidRecord(f"not CSV: {error}")
                continue
            yield reader.line_num, attempt(partial(cells, row))


def cells(row: Record) -> Record:
    """Return the cells of a row of a CSV file."""
    if None in row or None in row.values():
        raise InvalidRecord("more or fewer fields than the header")
    return {name: Cell(decode(value.encode(errors="surrogateescape"))) for name, value in row.items()}


def read_parquet(piece: Piece) -> Iterator[Row]:
    """Read the rows of a row group; where it is damaged, each of them is invalid."""
    file = pq.ParquetFile(piece.path)
    sizes = [file.metadata.row_group(group).num_rows for group in range(piece.end)]
    first, size, done = sum(sizes[:-1]) + 1, sizes[-1], 0
    try:
        for batch in file.iter_batches(1000, row_groups=[piece.begin]):
            yield from enumerate(batch.to_pylist(), first + done)
            done += len(batch)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        yield from ((row, InvalidRecord(f"damaged parquet: {reason}")) for row in range(first + done, first + size))


def read_image(piece: Piece) -> Iterator[Row]:
    """Yield the path of an image, which is decoded later, and its label."""
    label = {} if piece.label is None else {"label": piece.label}
    yield 1, {"image": {"path": piece.path, "bytes": None}, **label}


@dataclass(frozen=True)
class Format:
    """A kind of files: functions that read a piece, and say where to cut one into pieces, if it is."""

    rows: Callable[[Piece], Iterator[Row]]
    cuts: Callable[[Path, str], list[int]] = lambda path, documents: [0, path.stat().st_size]

    def pieces(self, path: Path, documents: str) -> list[Piece]:
        """Cut a file into pieces."""
        status = path.stat()
        stamp = status.st_size, status.st_mtime_ns
        return [Piece(str(path), *bounds, stamp, documents) for bounds in pairwise(self.cuts(path, documents))]


JSONL = Format(read_jsonl, lambda path, documents: cut_lines(path, "line"))
FORMATS = {
    ".jsonl": JSONL,
    ".ndjson": JSONL,
    ".txt": Format(read_text, cut_lines),
    ".csv": Format(read_csv),
    ".parquet": Format(read_parquet, cut_row_groups),
    **dict.fromkeys(IMAGES, Format(read_image)),
}


def format_of(path: str) -> Format:
    """Return the format of a file by its suffix."""
    return FORMATS[Path(path).suffix.lower()]


@cache
def lines_before(path: str, begin: int) -> int:
    """Count the lines of a file that end before a byte."""
    left, count = begin, 0
    with open(path, "rb") as file:
        while left and (block := file.read(min(left, 2**24))):
            count += block.count(b"\n")
            left -= len(block)
    return count
