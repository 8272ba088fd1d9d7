"""CSV and TSV: tables of text with a header, whose columns are separated by what the header shows."""

import csv
from collections import Counter
from collections.abc import Iterator
from functools import cache, partial
from io import TextIOWrapper

from qkv.scripts.data.encoding import UTF_8, bytes_encoding, open_bytes
from qkv.scripts.data.examples import Record
from qkv.scripts.data.pieces import InvalidRecord, Piece, Row, attempt

# A document may stand in a cell, and csv's own limit is 128 KiB.
csv.field_size_limit(2**31 - 1)
# Lines of a text in a cell that are not by chance all divided as the table is.
MANY = 10
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


class Cell(str):
    """A value of a file without types, which may be a number."""


def open_table(piece: Piece) -> TextIOWrapper:
    """Open a table as text; bytes of another encoding come as surrogates, which `cells` finds."""
    encoding = bytes_encoding(piece.encoding)
    known = "utf-8-sig" if encoding == UTF_8 else encoding
    return TextIOWrapper(open_bytes(piece.path, piece.encoding), encoding=known, errors="surrogateescape", newline="")


@cache
def delimiter_of(piece: Piece) -> str:
    """Return what separates the columns: what makes the most columns of the header, a tab in TSV, a comma in doubt."""
    if piece.path.lower().endswith(".tsv"):
        return "\t"
    with open_table(piece) as file:
        header = file.readline()
    columns = {mark: len(next(csv.reader([header], delimiter=mark), [])) for mark in DELIMITERS}
    return max(columns, key=lambda mark: columns[mark])


def read_delimited(piece: Piece) -> Iterator[Row]:
    """Read a table with a header; rows are numbered by the line they end on. ValueError for an unclear header."""
    with open_table(piece) as file:
        lines: list[str] = []
        reader = csv.DictReader(recorded(file, lines), strict=True, delimiter=delimiter_of(piece))
        reader.fieldnames = header(reader, piece)
        while True:
            done = reader.reader.line_num  # that of DictReader stays behind after an error
            lines.clear()
            try:
                row = next(reader)
                if are_records(lines[1:-1], len(reader.fieldnames), piece):
                    raise csv.Error(f"the quote of row {done + 1} is closed {len(lines) - 1} rows later")
            except StopIteration:
                return
            except csv.Error as error:  # after a quote that is not closed, every line up to here is lost
                reason = f"not CSV: {error}"
                yield from ((number, InvalidRecord(reason)) for number in range(done + 1, reader.reader.line_num + 1))
                continue
            yield reader.reader.line_num, attempt(partial(cells, row, piece))


def recorded(file: TextIOWrapper, lines: list[str]) -> Iterator[str]:
    """Yield the lines of a file, and append them to a list."""
    for line in file:
        lines.append(line)
        yield line


def are_records(lines: list[str], columns: int, piece: Piece) -> bool:
    """Return whether many lines within one record are records themselves, as after a quote that is not closed."""
    if len(lines) < MANY or columns == 1:
        return False
    return all(len(fields) == columns for fields in csv.reader(lines, delimiter=delimiter_of(piece)))


def header(reader: "csv.DictReader[str]", piece: Piece) -> list[str]:
    """Return the names of the columns; ValueError where one stands twice, or cannot be read."""
    try:
        names = [text_of(name.strip(), piece) for name in reader.fieldnames or ()]
    except (InvalidRecord, csv.Error) as error:
        raise ValueError(f"the header of {piece.path} cannot be read: {error}") from None
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"the header of {piece.path} names the column {twice[0]!r} twice; give each a name of its own")
    return names


def cells(row: Record, piece: Piece) -> Record:
    """Return the cells of a row."""
    if None in row or None in row.values():
        raise InvalidRecord("more or fewer fields than the header")
    return {name: Cell(text_of(value, piece)) for name, value in row.items()}


def text_of(value: str, piece: Piece) -> str:
    """Return a text; InvalidRecord for one with surrogates, which stand for bytes of another encoding."""
    return piece.decode(value.encode(bytes_encoding(piece.encoding), errors="surrogateescape"))
