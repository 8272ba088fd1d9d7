"""Rows of words and their tags, from the columns of files, folders and data sets of the Hub."""

import ast
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

from datasets import ClassLabel

from qkv.scripts.data.corpus import DataSet, Splits
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.data.own_tables import class_names, valid_tables
from qkv.scripts.data.splits.division import class_counts, divide_rows
from qkv.scripts.data.splits.duplicates import text_sketches
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
    column, label = recipe.text.column, recipe.text.label
    if label is None:
        raise ValueError(f"architecture={recipe.model.architecture!r} learns tags; name their column: text.label=tags")
    tables, facts = valid_tables(recipe, {(column, label): check_tagged})
    rows = {name: list(map(check_tagged, table[column], table[label])) for name, table in tables.items()}
    words, tags = ({name: [row[side] for row in own] for name, own in rows.items()} for side in (0, 1))
    kind = getattr(tables["train"].features[label], "feature", None)
    if isinstance(kind, ClassLabel):
        tags = {name: [[kind.names[int(tag)] for tag in own] for own in rows] for name, rows in tags.items()}
    known = class_names({name: chain(*rows) for name, rows in tags.items()}, recipe, label)
    counts = Counter(tag for own in tags["train"] for tag in set(own))
    rarest = {name: [min(own, key=lambda tag: (counts[tag], tag)) for own in rows] for name, rows in tags.items()}
    texts = {name: [" ".join(each) for each in own] for name, own in words.items()}
    division = divide_rows(text_sketches(texts), recipe, tables, rarest)
    divided = division.of_lists(tags)
    numbers = {name: [list(map(known.index, own)) for own in rows] for name, rows in divided.items()}
    report = division.report | {"classes": class_counts({name: [*chain(*rows)] for name, rows in divided.items()})}
    return TaggedWords(**facts, words=division.of_lists(words), tags=numbers, names=known, report=report)


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
        with suppress(ValueError, SyntaxError, RecursionError):
            value = parse(value) if isinstance(value, str) else value
    if isinstance(value, str):
        raise InvalidRecord("a list that does not end, or is written neither as JSON nor as Python does")
    if not isinstance(value, list) or not value or any(each is None for each in value):
        raise InvalidRecord("missing" if not value else f"{type(value).__name__}, expected lists of words and tags")
    return [str(each) for each in value]
