"""What do the columns of files hold? What most of the first records say; a record that holds else is a bad one."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from qkv.scripts.data.readers import Cell, Fault, Piece, Record, format_of, jsonl, number, rows_of, text

# How many records say what the columns hold, and in which words.
SAMPLE = 100
KINDS: dict[type, str] = {str: "string", bool: "bool", int: "int64", float: "float64"}


def kinds(pieces: Sequence[Piece]) -> dict[str, str]:
    """{column: what it holds}, as most of the first records have it; ValueError where none can be read.

    Numbers with and without fraction are one kind. Lists and the like come as JSON, except from parquet.
    """
    found: dict[str, Counter[str]] = {}
    faults: list[Fault] = []
    for record in islice(readable(pieces, faults), SAMPLE):
        for name, value in record.items():
            found.setdefault(name, Counter())[kind_of(value)] += value is not None
    chosen = {name: counts.most_common(1)[0][0] for name, counts in found.items()}
    mixed = [name for name, kind in chosen.items() if kind == "int64" and found[name]["float64"]]
    return chosen | dict.fromkeys(mixed, "float64")


def readable(pieces: Sequence[Piece], faults: list[Fault]) -> Iterator[Record]:
    """The good records, while what is wrong with the others goes to the list; ValueError where all are bad."""
    good = False
    for piece in pieces:
        for _, record in rows_of(piece):
            if isinstance(record, Fault):
                faults.append(record)
            else:
                good = True
                yield record
    if not good:
        where = pieces[0].path
        reason = f"no record of {where} can be read; the first is {faults[0]}" if faults else f"{where} has no records"
        raise ValueError(f"{reason}; give another file")


def kind_of(value: Any) -> str:
    """What a value is, in the words of Arrow."""
    if isinstance(value, Cell):
        value = number(value)
    return KINDS.get(type(value), "json")


def records(pieces: Sequence[Piece], columns: dict[str, str]) -> Iterator[Record]:
    """Every record with its origin; of a bad one `_fault` says what is wrong, and its columns hold nothing."""
    for piece in pieces:
        begin = piece.begin if format_of(piece.path).rows in (jsonl, text) else 0
        for row, found in rows_of(piece):
            origin = {"_file": piece.path, "_begin": begin, "_row": row, "_fault": None}
            try:
                yield {**typed(found, columns), **origin}
            except Fault as fault:
                yield {**dict.fromkeys(columns), **origin, "_fault": str(fault)}


def typed(record: "Record | Fault", columns: dict[str, str]) -> Record:
    """The columns of a record, each of its kind; Fault where one is of another, or the record is bad already."""
    if isinstance(record, Fault):
        raise record
    return {name: converted(name, record.get(name), kind) for name, kind in columns.items()}


def converted(name: str, value: Any, kind: str) -> Any:
    """The value as one of the kind; Fault where it is none."""
    if value is None or kind == "any":
        return value
    if isinstance(value, Cell):
        value = str(value) if kind == "string" else number(value)
    found = kind_of(value)
    if (found, kind) == ("int64", "float64"):
        return float(value)
    if found != kind:
        raise Fault(f"{name!r} is {found}, expected {kind}")
    return CHECKED[kind](value) if kind in CHECKED else value


def encodable(value: str) -> str:
    """A text that has a form in UTF-8: JSON can spell halves of characters."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Fault("half a character, which UTF-8 cannot write") from None
    return value


def in_range(value: int) -> int:
    """A number of 64 bits."""
    if not -(2**63) <= value < 2**63:
        raise Fault(f"{value} has more than 64 bits")
    return value


CHECKED: dict[str, Callable[[Any], Any]] = {"string": encodable, "int64": in_range, "json": json.dumps}
