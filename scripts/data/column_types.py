"""Types of the columns of files: what most of the first records hold; a record that differs is invalid."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

from qkv.scripts.data.examples import Record
from qkv.scripts.data.readers import Cell, InvalidRecord, Piece, format_of, read_jsonl, read_text

SAMPLE = 100  # records that decide the types
TYPES: dict[type, str] = {str: "string", bool: "bool", int: "int64", float: "float64"}


def infer_types(pieces: Sequence[Piece]) -> dict[str, str]:
    """Return the Arrow type of each column, as most of the first records have it; ValueError where none can be read.

    Numbers with and without fraction are one type. Lists and objects are kept as JSON, except from parquet.
    """
    counts: dict[str, Counter[str]] = {}
    valid, invalid = 0, None
    for _, record in chain.from_iterable(format_of(piece.path).rows(piece) for piece in pieces):
        if isinstance(record, InvalidRecord):
            invalid = invalid or record
            continue
        for name, value in record.items():
            counts.setdefault(name, Counter())[type_of(value)] += value is not None
        valid += 1
        if valid == SAMPLE:
            break
    if not valid:
        where = pieces[0].path
        reason = f"no record of {where} can be read; the first is {invalid}" if invalid else f"{where} has no records"
        raise ValueError(f"{reason}; give another file")
    types = {name: count.most_common(1)[0][0] for name, count in counts.items()}
    mixed = [name for name, kind in types.items() if kind == "int64" and counts[name]["float64"]]
    return types | dict.fromkeys(mixed, "float64")


def number(value: str) -> int | float | str:
    """Return the number that a text spells, or the text."""
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            pass
    return str(value)


def type_of(value: Any) -> str:
    """Return the type of a value in the words of Arrow."""
    return TYPES.get(type(number(value) if isinstance(value, Cell) else value), "json")


def records(pieces: Sequence[Piece], types: dict[str, str]) -> Iterator[Record]:
    """Yield every record with its origin; of an invalid one `_invalid` has the reason, and its columns are None."""
    for piece in pieces:
        rows = format_of(piece.path).rows
        begin = piece.begin if rows in (read_jsonl, read_text) else 0
        for row, record in rows(piece):
            origin = {"_file": piece.path, "_begin": begin, "_row": row, "_invalid": None}
            try:
                if isinstance(record, InvalidRecord):
                    raise record
                yield {**{name: convert(name, record.get(name), kind) for name, kind in types.items()}, **origin}
            except InvalidRecord as error:
                yield {**dict.fromkeys(types), **origin, "_invalid": str(error)}


def convert(name: str, value: Any, kind: str) -> Any:
    """Return the value as one of the type; InvalidRecord where it is of another."""
    if value is None or kind == "any":
        return value
    if isinstance(value, Cell):
        value = str(value) if kind == "string" else number(value)
    own = type_of(value)
    if (own, kind) == ("int64", "float64"):
        return float(value)
    if own != kind:
        raise InvalidRecord(f"{name!r} is {own}, expected {kind}")
    return CONVERTERS[kind](value) if kind in CONVERTERS else value


def encodable(value: str) -> str:
    """Return a text that UTF-8 can encode; InvalidRecord for a lone surrogate, which JSON can spell."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidRecord("a lone surrogate, which UTF-8 cannot encode") from None
    return value


def in_range(value: int) -> int:
    """Return a number of 64 bits; InvalidRecord for a larger one."""
    if not -(2**63) <= value < 2**63:
        raise InvalidRecord(f"{value} has more than 64 bits")
    return value


CONVERTERS: dict[str, Callable[[Any], Any]] = {"string": encodable, "int64": in_range, "json": json.dumps}
