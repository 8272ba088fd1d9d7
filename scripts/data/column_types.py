"""Types of the columns of files: what all records hold, and whether a column of texts spells numbers."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from qkv.scripts.data.audio import RECORDINGS
from qkv.scripts.data.examples import Record
from qkv.scripts.data.pieces import InvalidRecord, Piece
from qkv.scripts.data.readers import IMAGES, format_of

SAMPLE = 100  # records that tell the columns of a stream and the media that parquet stores
CLASSES = 50  # at most, of a column of classes
LONGEST_PATH = 1024  # characters
# Endings of files that tables name by their paths.
LOCATED = {"image": IMAGES, "audio": RECORDINGS}
# First bytes of files that parquet stores; wav and WebP say what they are after their length.
BEGINNINGS = {
    "image": (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*", b"MM\0*"),
    "audio": (b"fLaC", b"OggS", b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2"),
}
TYPES: dict[type, str] = {bool: "bool", int: "int64", float: "float64"}
NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


def valid_records(pieces: Sequence[Piece]) -> Iterator[Record]:
    """Yield the valid records; ValueError where there are none."""
    invalid, count = "", 0
    for piece in pieces:
        for row, record in format_of(piece).rows(piece):
            if isinstance(record, InvalidRecord):
                invalid = invalid or f"row {row}: {record}"
            else:
                count += 1
                yield record
    if not count:
        where = pieces[0].path if pieces else "this file"
        none = f"{where} has no records; give another file"
        raise ValueError(f"no record of {where} can be read; the first is {invalid}" if invalid else none)


def column_kinds(records: Iterable[Record]) -> dict[str, str]:
    """Return the kind of each column: the Arrow type that holds all of its values, or that of the files it names.

    Whole numbers beside fractions are float64; values of several other types, lists and objects are texts.
    """
    seen: dict[str, set[str]] = {}
    for record in map(with_fields, records):
        for name, value in record.items():
            kinds = seen.setdefault(name, set())
            if value is not None and value != "":
                kinds.add(media_of(value) or stored_media_of(value) or type_of(value))
    widest = {name: "float64" if kinds == {"int64", "float64"} else "string" for name, kinds in seen.items()}
    return widest | {name: next(iter(kinds)) for name, kinds in seen.items() if len(kinds) == 1}


def type_of(value: Any) -> str:
    """Return the Arrow type of a value; a whole number of more than 64 bits is a text, and so are lists and objects."""
    kind = TYPES.get(type(value), "string")
    return "string" if kind == "int64" and not -(2**63) <= value < 2**63 else kind


def media_of(value: Any) -> str | None:
    """Return the kind of the file that a value names; None for another value."""
    if not isinstance(value, str) or len(value) > LONGEST_PATH:
        return None
    ending = value[-12:].lower()
    return next((kind for kind, endings in LOCATED.items() if ending.endswith(endings)), None)


def stored_media_of(value: Any) -> str | None:
    """Return the kind of a file as parquet has it: its bytes, beside the path where it lay; None for another value."""
    data = value.get("bytes") if isinstance(value, dict) else None
    if not isinstance(data, bytes):
        return None
    if data.startswith(b"RIFF"):
        return {b"WAVE": "audio", b"WEBP": "image"}.get(data[8:12])
    return next((kind for kind, beginnings in BEGINNINGS.items() if data.startswith(beginnings)), None)


def as_numbers(values: Iterable[Any]) -> list[float] | None:
    """Return the numbers of a column; None for one of texts, or of codes, whose spelling tells them apart.

    007 is a code, and so are 1.1 and 1.10 where both occur, or 1.10 in a column of few values that repeat.
    """
    present = [value for value in values if value is not None and value != ""]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in present):
        return list(map(float, present)) or None
    if not all(isinstance(value, str) and NUMBER.fullmatch(value) for value in present):
        return None
    numbers = {text: float(text) for text in set(present)}
    merged = len(set(numbers.values())) < len(numbers) or not all(map(isfinite, numbers.values()))
    respelled = any(text not in (repr(number), f"{number:.0f}") for text, number in numbers.items())
    return None if merged or (respelled and is_repeated(present)) else [numbers[value] for value in present]


def is_repeated(values: Sequence[Any]) -> bool:
    """Tell whether the values of a column are classes: few, and each a few times."""
    different = len(set(values))
    return different <= CLASSES and different * 3 <= len(values)


def records(pieces: Sequence[Piece], kinds: dict[str, str], sources: dict[str, str]) -> Iterator[Record]:
    """Yield every record with its origin; of an invalid one `_invalid` has the reason, and its columns are None.

    `sources` has the columns that the file calls by another name.
    """
    for piece in pieces:
        for row, record in format_of(piece).rows(piece):
            values, reason = dict[str, Any](), str(record) if isinstance(record, InvalidRecord) else None
            try:
                own = {} if isinstance(record, InvalidRecord) else with_fields(record)
                values = {name: convert(own.get(sources.get(name, name)), kind, piece) for name, kind in kinds.items()}
            except InvalidRecord as error:
                reason = str(error)
            yield {**dict.fromkeys(kinds), **values, "_file": piece.path, "_row": row, "_invalid": reason}


def with_fields(record: Record) -> Record:
    """Return a record with the fields of its objects as columns of their own, such as `translation.en`."""
    inner = {
        f"{name}.{key}": value
        for name, own in record.items()
        if isinstance(own, dict)
        for key, value in own.items()
        if isinstance(value, str | int | float | None)
    }
    return {**inner, **record}


def convert(value: Any, kind: str, piece: Piece) -> Any:
    """Return a value as one of the kind; InvalidRecord for a text that UTF-8 cannot encode."""
    if value is None or kind in ("any", "bool", "int64"):
        return value
    if kind in LOCATED and isinstance(value, str):
        path = str(Path(piece.path).absolute().parent / value) if value else None
        return {"path": path, "bytes": None} if kind == "image" and path else path
    if kind != "string":
        return float(value) if kind == "float64" else value
    text = value if isinstance(value, str) else json.dumps(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRecord("a lone surrogate, which UTF-8 cannot encode") from None
    return text
