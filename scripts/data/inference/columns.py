"""Describe the columns of own data: what each holds, by its type, its values and its name."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from datasets import Audio, ClassLabel, Image

from qkv.scripts.data.column_types import LOCATED, as_numbers, is_repeated, media_of, stored_media_of
from qkv.scripts.data.structures.dot_bracket import BRACKETS, UNPAIRED

SHORT = 40  # letters of the longest name of a class
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
KINDS: dict[type, str] = {Image: "image", Audio: "audio", ClassLabel: "class"}


@dataclass(frozen=True)
class Column:
    """A column of own data: its name, its kind, and its values.

    Kinds are image, audio, boxes, text, class, number, list, structure in dot-bracket notation, and id.
    """

    name: str
    kind: str
    values: Sequence[Any]

    @property
    def is_binary(self) -> bool:
        """Tell whether the column says of one class whether a row has it."""
        return {str(value).lower() for value in self.values} in ({"0", "1"}, {"true", "false"})


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
        return kind
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
