"""Types of the columns of files: what most of the first records hold; a record that differs is invalid."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from qkv.scripts.data.delimited import Cell
from qkv.scripts.data.examples import Record
from qkv.scripts.data.pieces import InvalidRecord, Piece
from qkv.scripts.data.readers import IMAGES, format_of

SAMPLE = 100  # records that decide the types
LONGEST_PATH = 1024  # characters
# Endings of files that tables name by their paths.
LOCATED = {"image": IMAGES, "audio": (".wav", ".flac", ".mp3", ".ogg", ".m4a")}
# How files begin that parquet stores as bytes; a wav says so after its length.
BEGINNINGS = {
    "image": (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*", b"MM\0*"),
    "audio": (b"fLaC", b"OggS", b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2"),
}
TYPES: dict[type, str] = {str: "string", bool: "bool", int: "int64", float: "float64"}


def sample(pieces: Sequence[Piece]) -> list[Record]:
    """Return the first records that are valid; ValueError where there are none."""
    valid, invalid = list[Record](), ""
    for piece in pieces:
        for row, record in format_of(piece).rows(piece):
            if isinstance(record, InvalidRecord):
                invalid = invalid or f"row {row}: {record}"
                continue
            valid.append(record)
            if len(valid) == SAMPLE:
                return valid
    if not valid:
        where = pieces[0].path if pieces else "this file"
        none = f"{where} has no records; give another file"
        raise ValueError(f"no record of {where} can be read; the first is {invalid}" if invalid else none)
    return valid


def infer_types(pieces: Sequence[Piece]) -> dict[str, str]:
    """Return the Arrow type of each column, as most of the first records have it; ValueError where none can be read.

    Numbers with and without fraction are one type. Lists and objects are kept as JSON, except from parquet. Columns of
    paths have the kind of the files.
    """
    counts: dict[str, Counter[str]] = {}
    records = sample(pieces)
    for record in records:
        for name, value in record.items():
            counts.setdefault(name, Counter())[type_of(value)] += value is not None and value != ""
    types = {name: count.most_common(1)[0][0] for name, count in counts.items()}
    mixed = [name for name, kind in types.items() if kind == "int64" and counts[name]["float64"]]
    return types | dict.fromkeys(mixed, "float64") | media_types(records, media_of)


def media_types(records: Sequence[Record], media_of: Callable[[Any], str | None]) -> dict[str, str]:
    """Return the columns that hold files, all of one kind, by what tells the kind of a value."""
    kinds: dict[str, set[str | None]] = {}
    for record in records:
        for name, value in record.items():
            if value is not None and value != "":
                kinds.setdefault(name, set()).add(media_of(value))
    return {name: kind for name, own in kinds.items() if len(own) == 1 and (kind := own.pop())}


def media_of(value: Any) -> str | None:
    """Return the kind of the file that a value names; None for another value."""
    suffix = Path(value).suffix.lower() if isinstance(value, str) and len(value) < LONGEST_PATH else ""
    return next((kind for kind, suffixes in LOCATED.items() if suffix in suffixes), None)


def stored_media_of(value: Any) -> str | None:
    """Return the kind of a file as parquet has it: its bytes, beside the path where it lay; None for another value."""
    data = value.get("bytes") if isinstance(value, dict) else None
    if not isinstance(data, bytes):
        return None
    if data.startswith(b"RIFF"):
        return {b"WAVE": "audio", b"WEBP": "image"}.get(data[8:12])
    return next((kind for kind, beginnings in BEGINNINGS.items() if data.startswith(beginnings)), None)


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


def records(pieces: Sequence[Piece], types: dict[str, str], sources: dict[str, str]) -> Iterator[Record]:
    """Yield every record with its origin; of an invalid one `_invalid` has the reason, and its columns are None.

    `sources` are the columns of the file that have another name there.
    """
    for piece in pieces:
        for row, record in format_of(piece).rows(piece):
            origin = {"_file": piece.path, "_begin": first_byte(piece), "_row": row, "_invalid": None}
            try:
                if isinstance(record, InvalidRecord):
                    raise record
                own = {name: record.get(sources.get(name, name)) for name in types}
                yield {**{name: convert(name, own[name], kind, piece) for name, kind in types.items()}, **origin}
            except InvalidRecord as error:
                yield {**dict.fromkeys(types), **origin, "_invalid": str(error)}


def first_byte(piece: Piece) -> int:
    """Return the byte from which the rows of a piece are counted."""
    return piece.begin if format_of(piece).lined else 0


def convert(name: str, value: Any, kind: str, piece: Piece) -> Any:
    """Return the value as one of the type; InvalidRecord where it is of another."""
    if value is None or kind == "any" or (value == "" and isinstance(value, Cell) and kind != "string"):
        return None if value == "" else value
    if kind in LOCATED and isinstance(value, str):
        path = str(Path(piece.path).parent / value)
        return {"path": path, "bytes": None} if kind == "image" else path
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
