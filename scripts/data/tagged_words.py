"""Rows of words and their tags, from the columns of files, folders and data sets of the Hub."""

import ast
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from datasets import ClassLabel

from qkv.scripts.data.corpus import DataSet, Splits
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.data.loading import public_names
from qkv.scripts.data.pretrained import pretrained_classes
from qkv.scripts.data.splits.division import class_counts, divide_rows, groups_of, text_sketches
from qkv.scripts.data.text_columns import read_tables
from qkv.scripts.data.validation import RecordValidation
from qkv.scripts.recipes.schema import Recipe


@dataclass(frozen=True)
class TaggedWords(DataSet):
    """Rows of words in splits, and of each word the number of its tag in `names`."""

    words: Splits[list[str]]
    tags: Splits[list[int]]
    names: list[str]
    row_fields: ClassVar[Sequence[str]] = ("words", "tags")


def read_tagged_words(recipe: Recipe) -> TaggedWords:
    """Read words and tags, in splits by the rarest tag of each row; ValueError where a column is missing."""
    where, column, label = recipe.data.source, recipe.text.column, recipe.text.label
    if label is None:
        raise ValueError(f"architecture={recipe.model.architecture!r} learns tags; name their column: text.label=tags")
    invalid = RecordValidation(recipe.data.bad_records)
    tables = read_tables(recipe, {(column, label): check_tagged}, invalid)
    rows = {name: list(map(check_tagged, table[column], table[label])) for name, table in tables.items()}
    words, tags = ({name: [row[side] for row in own] for name, own in rows.items()} for side in (0, 1))
    kind = getattr(tables["train"].features[label], "feature", None)
    if isinstance(kind, ClassLabel):
        tags = {name: [[kind.names[int(tag)] for tag in own] for own in rows] for name, rows in tags.items()}
    counts = Counter(tag for own in tags["train"] for tag in set(own))
    known = pretrained_classes(recipe.model.init, sorted(counts))
    unknown = {tag for split in tags.values() for own in split for tag in own} - set(known)
    if unknown or len(known) < 2:
        wrong = f"tag {min(unknown)!r} is not among the" if unknown else "words need two tags or more, but there are"
        raise ValueError(f"{where}: {wrong} {len(known)} tags of column {label!r} in the training split")
    rarest = {name: [min(own, key=lambda tag: (counts[tag], tag)) for own in rows] for name, rows in tags.items()}
    texts = {name: [" ".join(each) for each in own] for name, own in words.items()}
    division = divide_rows(text_sketches(texts), recipe, rarest, groups_of(tables, recipe))
    divided = division.of_lists(tags)
    classes = class_counts({name: [tag for own in rows for tag in own] for name, rows in divided.items()})
    number = {tag: place for place, tag in enumerate(known)}
    return TaggedWords(
        **public_names(where),
        words=division.of_lists(words),
        tags={name: [[number[tag] for tag in own] for own in rows] for name, rows in divided.items()},
        names=list(number),
        invalid_records=invalid,
        report=division.report | {"classes": classes},
    )


def check_tagged(words: Any, tags: Any) -> tuple[list[str], list[str]]:
    """Return words and their tags; InvalidRecord where there are none, or not a tag for each word."""
    words, tags = as_list(words), as_list(tags)
    if len(words) != len(tags):
        raise InvalidRecord(f"{len(words)} words, but {len(tags)} tags")
    if not all(word.strip() for word in words + tags):
        raise InvalidRecord("an empty word or tag")
    return words, tags


def as_list(value: Any) -> list[str]:
    """Return a list of words, given as such, as JSON, as Python writes it, or with spaces between them."""
    if isinstance(value, str) and not value.startswith("["):
        value = value.split()
    for parse in (json.loads, ast.literal_eval):
        try:
            value = parse(value) if isinstance(value, str) else value
        except (ValueError, SyntaxError, RecursionError):
            pass
    if isinstance(value, str):
        raise InvalidRecord("a list that does not end, or is written neither as JSON nor as Python does")
    if not isinstance(value, list) or not value or any(each is None for each in value):
        raise InvalidRecord("missing" if not value else f"{type(value).__name__}, expected lists of words and tags")
    return [str(each) for each in value]
