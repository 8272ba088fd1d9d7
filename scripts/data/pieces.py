"""Pieces of files: where files of text are cut, and their lines and paragraphs with their numbers."""

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from qkv.scripts.data.encoding import UTF_8, bytes_encoding, is_wide, open_bytes
from qkv.scripts.data.examples import Record

PIECE_BYTES = 2**22
# Where a record is from, and what is wrong with it. `_row` counts from 1, from the byte `_begin` of the file on.
ORIGIN = {"_file": "string", "_begin": "int64", "_row": "int64", "_invalid": "string"}


@dataclass(frozen=True)
class Piece:
    """A part of a file: the bytes of text from `begin` to `end`, row groups of parquet, or a whole file.

    `stamp` has size and time of change of the file, and of those that it names, so that a cache made of older ones is
    not taken for their content.
    A `target` is the file whose lines belong to those of this one.
    """

    path: str
    begin: int
    end: int
    stamp: tuple[int, ...]
    documents: str = "line"
    label: int | None = None
    encoding: str = UTF_8
    target: str | None = None

    def decode(self, data: bytes) -> str:
        """Decode bytes of the file; InvalidRecord names the first that is wrong, and what would read it."""
        encoding = bytes_encoding(self.encoding)
        try:
            return data.decode(encoding)
        except UnicodeDecodeError as error:
            # Latin-1 has control characters where Windows has quotation marks and dashes.
            likely = "cp1252" if re.search(rb"[\x80-\x9f]", data) else "latin-1"
            hint = f"encoding={likely}" if encoding == UTF_8 else "its own encoding"
            raise InvalidRecord(
                f"not {encoding.upper()} from its byte {error.start} on; save the file as UTF-8, or give {hint}"
            ) from None


class InvalidRecord(Exception):
    """The reason why one record is invalid, in a few words."""


# The number of a row in its piece, and its values or what is wrong with it.
Row = tuple[int, Record | InvalidRecord]


def attempt(make: Callable[[], Record]) -> Record | InvalidRecord:
    """Return a record, or what is wrong with it."""
    try:
        return make()
    except InvalidRecord as error:
        return error


def cut_lines(path: Path, documents: str, encoding: str) -> list[int]:
    """Return where to cut a file of lines, or of paragraphs between blank lines: where one ends."""
    size, cuts = path.stat().st_size, [0]
    with path.open("rb") as file:
        while documents != "file" and not is_wide(encoding) and cuts[-1] + PIECE_BYTES < size:
            # From the byte before on, for a line may begin right there.
            file.seek(cuts[-1] + PIECE_BYTES - 1)
            file.readline()
            while documents == "paragraph" and file.readline().strip():
                pass
            cuts.append(file.tell())
    return cuts if cuts[-1] == size > 0 else [*cuts, size]


def lines(piece: Piece) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a piece with their numbers."""
    with open_bytes(piece.path, piece.encoding) as file:
        file.seek(piece.begin)
        # A file that is read whole has other bytes than it has on disk.
        left = float("inf") if is_wide(piece.encoding) else piece.end - piece.begin
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


@cache
def lines_before(path: str, begin: int) -> int:
    """Count the lines of a file that end before a byte."""
    left, count = begin, 0
    with open(path, "rb") as file:
        while left and (block := file.read(min(left, 2**24))):
            count += block.count(b"\n")
            left -= len(block)
    return count
