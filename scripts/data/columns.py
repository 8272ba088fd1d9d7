"""Columns of tables: their types, and their roles by values and names."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from datasets import Audio, ClassLabel, Image

from qkv.scripts.data.audio import RECORDINGS
from qkv.scripts.data.examples import Record
from qkv.scripts.data.readers import IMAGES, whole

CLASSES = 50  # at most, of a column of classes
SHORT = 40  # letters of the longest name of a class
LONGEST_PATH = 1024  # characters
# Endings of files that tables name by their paths.
LOCATED = {"image": IMAGES, "audio": RECORDINGS}
SOUND = (b"RIFF", b"fLaC", b"OggS", b"ID3", b"FORM", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2")  # first bytes of recordings
TYPES: dict[type, str] = {bool: "bool", int: "int64", float: "float64"}
NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
# Usual names of the columns of each role.
NAMES = {
    "class": "label labels class category target y intent topic sentiment tag kind type".split(),
    "text": "text sentence content body review comment message document article caption transcription prompt".split(),
    "source": "source src input en question instruction prompt".split(),
    "target": "target tgt output translation summary answer response completion".split(),
    "number": "label score rating stars value price similarity y target".split(),
    "words": "tokens words text".split(),
    "chain": "sequence seq chain rna primary".split(),
    "tags": "tags ner_tags pos_tags upos labels label".split(),
}
BRACKETS, UNPAIRED = {")": "(", "]": "[", "}": "{", ">": "<"}, ".,:_-"  # of dot-bracket notation
DOT_BRACKET = {*BRACKETS, *BRACKETS.values(), *UNPAIRED}
IGNORED = re.compile(r"id|idx|index|uuid|unnamed.*|row|_.*", re.IGNORECASE)
KINDS: dict[type, str] = {Image: "image", Audio: "audio", ClassLabel: "class"}


def column_types(records: Iterable[Record], stored: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return the Arrow type that holds all values of each column, or the medium of the files that it names.

    Whole numbers beside fractions are float64; values of several other types, lists, objects and whole numbers of more
    than 64 bits are texts. Of columns that are `stored` with a type only the media matter.
    """
    seen: dict[str, set[str]] = {name: set() for name in stored or ()}
    for record in map(with_fields, records):
        for name, value in record.items():
            types = seen.setdefault(name, set())
            if value is not None and value != "":
                kind = TYPES.get(type(value), "string")
                fits = kind != "int64" or -(2**63) <= value < 2**63
                types.add(media_of(value) or stored_media_of(value) or (kind if fits else "string"))
    kinds = {name: "float64" if types == {"int64", "float64"} else "string" for name, types in seen.items()}
    kinds |= {name: next(iter(types)) for name, types in seen.items() if len(types) == 1}
    return {name: KINDS.get(type(kind), kinds[name]) for name, kind in stored.items()} if stored else kinds


def media_of(value: Any) -> str | None:
    """Return the medium of the file that a value names; None for another value."""
    if not isinstance(value, str) or len(value) > LONGEST_PATH:
        return None
    ending = value[-12:].lower()
    return next((kind for kind, endings in LOCATED.items() if ending.endswith(endings)), None)


def stored_media_of(value: Any) -> str | None:
    """Return the medium of a file that parquet stores as its bytes beside a path; None for other values."""
    data = value.get("bytes") if isinstance(value, Mapping) else None
    if not isinstance(data, bytes) or not data:
        return None
    return "audio" if data.startswith(SOUND) and data[8:12] != b"WEBP" else "image"


def with_fields(record: Record) -> Record:
    """Return a record with the fields of its objects as separate columns, such as `translation.en`."""
    inner = {
        f"{name}.{key}": value
        for name, own in record.items()
        if isinstance(own, dict)
        for key, value in own.items()
        if isinstance(value, str | int | float | None)
    }
    return {**inner, **record}


def converted(value: Any, kind: str, folder: Path) -> Any:
    """Convert a value to a type, and a path relative to the folder to an absolute one."""
    if kind in LOCATED and isinstance(value, str):
        path = str(folder.absolute() / value) if value else None
        return {"path": path, "bytes": None} if kind == "image" and path else path
    if value is None or kind not in ("string", "float64"):
        return value
    return float(value) if kind == "float64" else whole(value if isinstance(value, str) else json.dumps(value))


def as_numbers(values: Iterable[Any]) -> list[float] | None:
    """Return the numbers of a column; None for texts, and for codes such as 007 or 1.10, whose spelling matters."""
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


def is_binary(values: Sequence[Any]) -> bool:
    """Tell whether the values of a column say of one class whether a row has it."""
    return {str(value).lower() for value in values} in ({"0", "1"}, {"true", "false"})


@dataclass(frozen=True)
class Column:
    """A column: of images, audio, boxes, texts, classes, numbers, lists, structures in dot-bracket notation, or ids."""

    name: str
    kind: str
    values: Sequence[Any]


def kind_of(name: str, feature: Any, values: Sequence[Any]) -> str:
    """Return the kind of a column by its name, type and values."""
    present = [value for value in values if value is not None and value != ""]
    if IGNORED.fullmatch(name) or type(feature) in KINDS:
        return KINDS.get(type(feature), "id")
    if not present:
        return "empty"
    if numbers := as_numbers(present):
        return "class" if all(number.is_integer() for number in numbers) and is_repeated(present) else "number"
    if all(isinstance(value, str) for value in present):
        return kind_of_texts(present)
    if all(isinstance(value, bool) for value in present):
        return "class"
    if all(isinstance(value, list) and all(isinstance(item, str | int) for item in value) for value in present):
        return "list"
    return "boxes" if "bbox" in str(present[0]) else stored_media_of(present[0]) or "nested"


def kind_of_texts(values: Sequence[str]) -> str:
    """Return the kind of a column of texts: names of files, boxes as JSON, structures, lists, classes or texts."""
    media = {media_of(value) for value in values}
    if len(media) == 1 and (kind := media.pop()) in LOCATED:
        return str(kind)
    if all('"bbox"' in value for value in values if value != "[]"):
        return "boxes"
    if set("".join(values)) <= DOT_BRACKET and any("(" in value for value in values):
        return "structure"
    if all(value.startswith("[") and value.endswith("]") for value in values):
        return "list"
    return "class" if is_repeated(values) and max(map(len, values)) <= SHORT else "text"


def first(columns: Sequence[Column], role: str, *kinds: str) -> Column | None:
    """Return the column that is called by a role, the most usual name first; a class also by its values."""
    kinds = kinds or (("class", "text") if role == "class" else ("text", "class"))
    called = [column for column in columns if column.kind in kinds and column.name.lower() in NAMES[role]]
    called.sort(key=lambda column: NAMES[role].index(column.name.lower()))
    return next(iter([*called, *(column for column in columns if role == column.kind == "class")]), None)


def longest(columns: Sequence[Column]) -> Column | None:
    """Return the column with the longest texts."""
    texts = [column for column in columns if column.kind == "text"]
    return max(texts, key=lambda column: sum(map(len, map(str, column.values))), default=None)
