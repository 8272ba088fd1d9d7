"""Describe the columns of own data: what each holds, by its type, its values and its name."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from datasets import Audio, ClassLabel, Image

from qkv.scripts.data.column_types import stored_media_of
from qkv.scripts.data.examples import Record
from qkv.scripts.data.pieces import ORIGIN, InvalidRecord, attempt
from qkv.scripts.data.readers import IMAGES
from qkv.scripts.data.structures.dot_bracket import BRACKETS, UNPAIRED
from qkv.scripts.data.validation import check_image

CLASSES, SHORT = 50, 40  # at most, of a column of classes; letters of the longest of their names
SUFFIXES = {"image": IMAGES, "audio": (".wav", ".flac", ".mp3", ".ogg")}
# What columns of each role are often called.
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
# Columns of two texts that are read together.
PAIRS = {"sentence1": "sentence2", "premise": "hypothesis", "question1": "question2", "text_a": "text_b",
         "text": "text_pair"}  # fmt: skip
DOT_BRACKET = {*BRACKETS, *BRACKETS.values(), *UNPAIRED}
IGNORED = re.compile(r"id|idx|index|uuid|unnamed.*|row|_.*", re.IGNORECASE)


@dataclass(frozen=True)
class Column:
    """A column of own data: its name, its kind, and some values.

    Kinds are image, audio, boxes, text, class, number, list and structure, in dot-bracket notation.
    """

    name: str
    kind: str
    values: Sequence[Any]


def describe(rows: Sequence[Record], features: Any) -> list[Column]:
    """Describe the columns of some rows, without numbers of rows and such."""
    columns = []
    for name in rows[0]:
        values = [row[name] for row in rows]
        if name not in ORIGIN and not IGNORED.fullmatch(name):
            columns.append(Column(name, kind_of((features or {}).get(name), values), values))
    return columns


def kind_of(feature: Any, values: Sequence[Any]) -> str:
    """Return the kind of a column by its type and values."""
    present = [value for value in values if value is not None and value != ""]
    if isinstance(feature, Image | Audio | ClassLabel):
        return {Image: "image", Audio: "audio", ClassLabel: "class"}[type(feature)]
    if not present:
        return "empty"
    if all(isinstance(value, int | float) for value in present):
        return "class" if all(float(value).is_integer() for value in present) and is_repeated(present) else "number"
    if all(isinstance(value, str) for value in present):
        return kind_of_texts(present)
    if all(isinstance(value, list) and all(isinstance(item, str | int) for item in value) for value in present):
        return "list"
    if is_image(present[0]):
        return "image"
    return "boxes" if "bbox" in str(present[0]) else stored_media_of(present[0]) or "nested"


def kind_of_texts(values: Sequence[str]) -> str:
    """Return the kind of a column of texts: names of files, boxes as JSON, structures, classes or texts."""
    for kind, endings in SUFFIXES.items():
        if all(value.lower().endswith(endings) for value in values):
            return kind
    if all('"bbox"' in value for value in values if value != "[]"):
        return "boxes"
    if set("".join(values)) <= DOT_BRACKET and any("(" in value for value in values):
        return "structure"
    if all(value.startswith("[") and value.endswith("]") for value in values):
        return "list"
    return "class" if is_repeated(values) and max(map(len, values)) <= SHORT else "text"


def is_repeated(values: Sequence[Any]) -> bool:
    """Tell whether the values of a column are classes: few, and each a few times."""
    different = len(set(values))
    return different <= CLASSES and different * 3 <= len(values)


def is_image(value: Any) -> bool:
    """Tell whether a value is an image as datasets store it."""
    return not isinstance(attempt(lambda: {"image": check_image(value)}), InvalidRecord)


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
