"""Columns of tables: their types, and their roles by values and names."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from datasets import Audio, ClassLabel, Image

from qkv.scripts.common.files import table
from qkv.scripts.data.examples import InvalidRecord, Record
from qkv.scripts.data.formats.encodings import whole
from qkv.scripts.data.formats.readers import IMAGES

CLASSES = 50  # at most, of a column of classes
SHORT = 40  # letters of the longest name of a class
LONGEST_PATH = 1024  # characters
# Usual names of columns by role, and endings of files that tables name: of those that are `closed`, which cannot be
# opened, the medium is known.
KNOWN = table(__file__)
NAMES: dict[str, list[str]] = KNOWN["names"]
LOCATED = {"image": IMAGES, "audio": tuple(KNOWN["recordings"])}
MEDIA = {ending: kind for endings in (KNOWN["closed"], LOCATED) for kind, own in endings.items() for ending in own}
SOUND = (b"RIFF", b"fLaC", b"OggS", b"ID3", b"FORM", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2")  # first bytes of recordings
STORED = {"bytes", "path"}  # the fields of a file in parquet
EXACT = 2**53  # the greatest whole number that no fraction rounds
TYPES: dict[type, str] = {bool: "bool", int: "int64", float: "float64"}
NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]|$)|\d{1,2}([./-])\d{1,2}\2\d{4}( |$)|\d{4}/\d\d/\d\d( |$)", re.ASCII)
COMMA = re.compile(r"[+-]?(0|[1-9]\d*),\d+", re.ASCII)
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}", re.ASCII)
# A number with thousands apart, a decimal comma or a percent sign.
FORMATTED = re.compile(r"[+-]?(0|[1-9]\d*)([.,'’ \u00a0\u202f]\d{3})*([.,]\d+)?[ \u00a0\u202f]?%?", re.ASCII)
UNCLEAR, ANY = "number in unclear form", "any"  # kinds of columns
DIFFERENT = 1000  # values of a column that are counted
# Spellings of 0 and 1 in a column that says of one class whether a row has it.
FLAGS = {"0": 0, "false": 0, "0.0": 0, "1": 1, "true": 1, "1.0": 1}
BRACKETS, UNPAIRED = {")": "(", "]": "[", "}": "{", ">": "<"}, ".,:_-"  # of dot-bracket notation
DOT_BRACKET = {*BRACKETS, *BRACKETS.values(), *UNPAIRED}
IGNORED = re.compile(r"|id|idx|index|uuid|unnamed.*|row|_.*", re.IGNORECASE)
KINDS: dict[type, str] = {Image: "image", Audio: "audio", ClassLabel: "class"}


def column_types(records: Iterable[Record], stored: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return the Arrow type that holds all values of each column, or the medium of the files that it names.

    Whole numbers beside fractions are float64; values of several other types, lists, objects and whole numbers of more
    than 64 bits are texts. A column that mostly names files of a medium is of that medium: its other values are wrong
    names. Of columns that are `stored` with a type only the media matter.
    """
    seen: dict[str, Counter[str]] = {name: Counter() for name in stored or ()}
    for record in map(with_fields, records):
        for name, value in record.items():
            types = seen.setdefault(name, Counter())
            if value is not None and value != "":
                kind = TYPES.get(type(value), "string")
                if kind == "int64" and not -EXACT <= value <= EXACT:
                    kind = "wide" if -(2**63) <= value < 2**63 else "string"
                types[media_of(value) or kind] += 1
    for types in seen.values():
        if "wide" in types and "float64" not in types:  # beside fractions it would lose digits, and becomes a text
            types["int64"] += types.pop("wide")
    kinds = {name: "float64" if types.keys() == {"int64", "float64"} else "string" for name, types in seen.items()}
    most = {name: types.most_common(1)[0] for name, types in seen.items() if types}
    kinds |= {name: kind for name, (kind, count) in most.items()
              if len(seen[name]) == 1 or (kind in LOCATED and 2 * count > seen[name].total())}  # fmt: skip
    return {name: KINDS.get(type(kind), kinds[name]) for name, kind in stored.items()} if stored else kinds


def media_of(value: Any) -> str | None:
    """Return the medium of the file that a value names or, as in parquet, stores; None for another value."""
    if isinstance(value, Mapping):
        data = value.get("bytes")
        if isinstance(data, bytes) and data:
            return "audio" if data.startswith(SOUND) and data[8:12] != b"WEBP" else "image"
        value = value.get("path") if value.keys() == STORED else None
    if not isinstance(value, str) or len(value) > LONGEST_PATH:
        return None
    return MEDIA.get("".join(value.rstrip().rpartition(".")[1:]).lower())


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
    if kind in LOCATED:
        if not isinstance(value, str | Mapping | None):
            raise InvalidRecord(f"{value!r}, expected the name of a file")
        file = located(value, folder)
        return file["path"] if file and kind == "audio" and isinstance(value, str) else file
    if value is None or kind not in ("string", "float64"):
        return value
    return float(value) if kind == "float64" else whole(value if isinstance(value, str) else json.dumps(value))


def located(value: Any, folder: Path) -> Any:
    """Return a file that a table in a folder names or stores, its path absolute, perhaps written as of Windows.

    InvalidRecord for an address of the network.
    """
    path = value if isinstance(value, str) or not value or value.get("bytes") else value.get("path")
    if not isinstance(path, str) or not path:
        return value or None
    if "://" in path[:12]:
        raise InvalidRecord(f"{path[:60]!r} is an address, expected the name of a file; fetch it first")
    place, plain = folder.absolute() / whole(path), path.strip().replace("\\", "/")
    return {"path": str(folder.absolute() / plain if plain != path and not place.exists() else place), "bytes": None}


def number_of(value: Any) -> float | None:
    """Return a number, or the one that a text spells, also with a decimal comma; None where 1,234 may be thousands."""
    if isinstance(value, str):
        value = value.replace(",", ".") if COMMA.fullmatch(value) and not THOUSANDS.fullmatch(value) else value
        number = float(value) if NUMBER.fullmatch(value) else math.nan
        return number if math.isfinite(number) else None
    return float(value) if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else None


# Kinds of values; those of a column are the kinds of all its values.
VALUES: dict[str, Callable[[Any], Any]] = {
    "number": lambda value: not isinstance(value, str) and number_of(value) is not None,
    "spelled": lambda value: isinstance(value, str) and number_of(value) is not None,
    "formatted": lambda value: isinstance(value, str) and (FORMATTED.fullmatch(value) or NUMBER.fullmatch(value)),
    "point": lambda value: isinstance(value, str) and "," not in value,
    "comma": lambda value: isinstance(value, str) and "." not in value,
    "whole": lambda value: (number_of(value) or 0) % 1 == 0,
    "date": lambda value: isinstance(value, str) and DATE.match(value) is not None,
    "bool": lambda value: isinstance(value, bool),
    "text": lambda value: isinstance(value, str),
    "short": lambda value: isinstance(value, str) and len(value) <= SHORT,
    "image": lambda value: media_of(value) == "image",
    "audio": lambda value: media_of(value) == "audio",
    "boxes": lambda value: isinstance(value, str) and ('"bbox"' in value or value == "[]"),
    "dots": lambda value: isinstance(value, str) and DOT_BRACKET.issuperset(value),
    "unpaired": lambda value: isinstance(value, str) and "(" not in value,
    "brackets": lambda value: isinstance(value, str) and value[:1] == "[" and value[-1:] == "]",
    "list": lambda value: isinstance(value, list) and all(isinstance(item, str | int) for item in value),
    "binary": lambda value: isinstance(value, str | int | float) and str(value).lower() in FLAGS,
}  # fmt: skip


class Column:
    """A column: its kind by its name, type and values, which are added some at a time and never all in memory.

    `sample` has the values of every `step`-th row. Of at most `DIFFERENT` texts of values `counts` says how often each
    occurs.
    """

    def __init__(self, name: str, feature: Any = None, step: int = 1) -> None:
        self.name, self.feature, self.step = name, feature, step
        self.rows = self.count = self.letters = 0
        self.sample: list[Any] = []
        self.counts: Counter[str] = Counter()
        self.holds = {*VALUES}

    def add(self, values: Sequence[Any]) -> "Column":
        """Add values, of which None and empty texts are none."""
        self.sample += values[-self.rows % self.step :: self.step]
        self.rows += len(values)
        present = [value for value in values if value is not None and value != ""]
        self.count += len(present)
        self.holds = {kind for kind in self.holds if all(map(VALUES[kind], present))}
        self.letters += sum(map(len, present)) if "text" in self.holds else 0
        plain = (str(value)[:LONGEST_PATH] for value in present if isinstance(value, str | int | float))
        for value in plain:
            if value in self.counts or len(self.counts) < DIFFERENT:
                self.counts[value] += 1
        return self

    @property
    def is_repeated(self) -> bool:
        """Return whether the values are classes: few, and each a few times."""
        return len(self.counts) <= CLASSES and len(self.counts) * 3 <= self.count

    @property
    def is_binary(self) -> bool:
        """Return whether the values say of one class whether a row has it."""
        return "binary" in self.holds and {FLAGS[value.lower()] for value in self.counts} == {0, 1}

    @property
    def is_numeric(self) -> bool:
        """Return whether the values are numbers, and no codes such as 007 or 1.10, whose spelling matters."""
        if self.is_unclear:
            return False
        if "spelled" not in self.holds or not self.count:
            return "number" in self.holds and self.count > 0
        numbers = {text.replace(",", "."): number_of(text) for text in self.counts}
        respelled = any(text not in (repr(number), f"{number:.0f}") for text, number in numbers.items())
        return len({*numbers.values()}) == len(numbers) and not (respelled and self.is_repeated)

    @property
    def is_unclear(self) -> bool:
        """Return whether the values are numbers to read in several ways, such as 1,007, 7.5%, or 1.5 and 1,5."""
        return "formatted" in self.holds and ("spelled" not in self.holds or not self.holds & {"point", "comma"})

    @property
    def kind(self) -> str:
        """Return image, audio, boxes, text, class, number, date, list, structure (dot-bracket), id, nested, UNCLEAR."""
        if IGNORED.fullmatch(self.name) or type(self.feature) in KINDS:
            return KINDS.get(type(self.feature), "id")
        if not self.count:
            return "empty"
        if self.is_numeric:
            return "class" if "whole" in self.holds and self.is_repeated else "number"
        if self.is_unclear:
            return UNCLEAR
        if "text" in self.holds:
            return self.kind_of_texts()
        if found := [kind for kind in ("bool", "list") if kind in self.holds]:
            return "class" if found == ["bool"] else "list"
        values = [value for value in self.sample if value not in (None, "")]
        return "boxes" if any("bbox" in str(value) for value in values) else media_of(values[0]) or "nested"

    @property
    def is_json(self) -> bool:
        """Return whether the texts are objects of JSON, which say of an image neither its caption nor its class."""
        texts = [str(value) for value in self.sample if value]
        return self.kind in ("text", "class") and all(text.startswith(("{", "[{")) for text in texts)

    def kind_of_texts(self) -> str:
        """Return the kind of texts: names of files, boxes as JSON, structures, lists, classes or texts."""
        if found := [kind for kind in ("image", "audio", "boxes", "date") if kind in self.holds]:
            return found[0]
        if "dots" in self.holds and "unpaired" not in self.holds:
            return "structure"
        if "brackets" in self.holds:
            return "list"
        return "class" if self.is_repeated and "short" in self.holds else "text"


def joined(columns: Sequence[Column]) -> Column:
    """Return columns of 0 and 1, each of which says of one class whether a row has it, as one column of lists."""
    names = [column.name for column in columns]
    return Column(",".join(names)).add([names])


def check_spelling(columns: Sequence[Column], where: str) -> None:
    """Raise ValueError for a column of numbers that may be read in several ways."""
    for column in (column for column in columns if column.kind == UNCLEAR):
        value = next((text for text in column.counts if "," in text or number_of(text) is None), "")
        raise ValueError(
            f"{where}: {value!r} in column {column.name!r} may have thousands, a decimal comma or percent; write all "
            f"its numbers as 1007.5, or learn them as names by task=text-classification text.label={column.name}"
        )


def first(columns: Sequence[Column], role: str, *kinds: str) -> Column | None:
    """Return the column of these kinds that is called by a role, usual names first; a class also by its values."""
    kinds = kinds or (("class", "text") if role == "class" else ("text", "class", "date"))
    called = [column for column in columns if {column.kind, ANY} & {*kinds} and column.name.lower() in NAMES[role]]
    called.sort(key=lambda column: NAMES[role].index(column.name.lower()))
    return next(iter([*called, *(column for column in columns if role == column.kind == "class")]), None)


def of_kind(columns: Sequence[Column], kind: str) -> Column | None:
    """Return the first column of a kind."""
    return next((column for column in columns if column.kind == kind), None)


def longest(columns: Sequence[Column]) -> Column | None:
    """Return the column with the longest texts."""
    texts = [column for column in columns if column.kind == "text"]
    return max(texts, key=lambda column: column.letters, default=None)
