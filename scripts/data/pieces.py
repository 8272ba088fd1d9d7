"""Pieces of files, so that several processes can share a file and a stream can resume in its middle."""

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from qkv.scripts.data.encoding import UTF_8, is_wide
from qkv.scripts.data.examples import Record

PIECE_BYTES = 2**22
# The file and row of a record, counted from 1, and the reason why it is invalid.
ORIGIN = {"_file": "string", "_row": "int64", "_invalid": "string"}


@dataclass(frozen=True)
class Piece:
    """Part of a file: the bytes of text from `begin` to `end`, a row group of parquet, or the whole file.

    `before` counts the lines or rows before it. The `stamp` has size and times of the file and of the files that it
    names, so that a stale cache is not taken for their content. The lines of `target` belong to the lines of this file.
    """

    path: str
    begin: int
    end: int
    stamp: tuple[int, ...]
    before: int = 0
    documents: str = "line"
    label: int | None = None
    encoding: str = UTF_8
    target: str | None = None

    @property
    def read_as(self) -> str:
        """Return the encoding of the bytes of `lines`."""
        return UTF_8 if is_wide(self.encoding) else self.encoding

    def decode(self, data: bytes) -> str:
        """Decode bytes of the file; InvalidRecord names the first wrong byte and the encoding that would read it."""
        try:
            return data.decode(self.read_as)
        except UnicodeDecodeError as error:
            # Latin-1 has control characters where Windows has quotation marks and dashes.
            likely = "cp1252" if re.search(rb"[\x80-\x9f]", data) else "latin-1"
            hint = f"encoding={likely}" if self.read_as == UTF_8 else "the right encoding="
            raise InvalidRecord(
                f"not {self.read_as.upper()} from its byte {error.start} on; save the file as UTF-8, or give {hint}"
            ) from None


class InvalidRecord(Exception):
    """The reason why one record is invalid, in a few words."""


# The number of a row in its file, and its values or the reason why it is invalid.
Row = tuple[int, Record | InvalidRecord]


def attempt(make: Callable[[], Record]) -> Record | InvalidRecord:
    """Return a record, or the reason why it is invalid."""
    try:
        return make()
    except InvalidRecord as error:
        return error


def cut_lines(path: Path, documents: str, encoding: str) -> list[tuple[int, int]]:
    """Return the bytes at which to cut a file of lines, or of paragraphs between blank lines, and the lines before."""
    size, cuts = path.stat().st_size, [(0, 0)]
    with path.open("rb") as file:
        while documents != "file" and not is_wide(encoding) and cuts[-1][0] + PIECE_BYTES < size:
            # Up to the byte before, for a line may begin right there.
            count = file.read(PIECE_BYTES - 1).count(b"\n") + file.readline().count(b"\n")
            while documents == "paragraph" and (line := file.readline()):
                count += line.endswith(b"\n")
                if not line.strip():
                    break
            cuts.append((file.tell(), cuts[-1][1] + count))
    return cuts if cuts[-1][0] == size > 0 else [*cuts, (size, 0)]


def open_bytes(piece: Piece) -> BinaryIO:
    """Open a file as bytes whose lines end with one byte: a wide encoding is read whole, as UTF-8."""
    if not is_wide(piece.encoding):
        return open(piece.path, "rb")
    try:
        return BytesIO(Path(piece.path).read_bytes().decode(piece.encoding).encode())
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{piece.path} is not {piece.encoding.upper()} from its byte {error.start} on; save it as UTF-8, or give "
            "its encoding="
        ) from None


def lines(piece: Piece) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a piece with their numbers, without a byte order mark."""
    with open_bytes(piece) as file:
        file.seek(piece.begin)
        # A wide encoding has other bytes than on disk.
        left = float("inf") if is_wide(piece.encoding) else piece.end - piece.begin
        for number, line in enumerate(file, start=piece.before + 1):
            if left <= 0:
                return
            left -= len(line)
            yield number, line.removeprefix(BOM_UTF8) if number == 1 else line


def paragraphs(piece: Piece) -> Iterator[tuple[int, bytes]]:
    """Yield the text between blank lines, with the number of its first line."""
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
