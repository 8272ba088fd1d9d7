"""Rows of words and their tags, from the columns of files, folders and data sets of the Hub."""

import ast
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from datasets import ClassLabel, Dataset

from qkv.scripts.data.corpus import DataSet, Splits
from qkv.scripts.data.examples import Record
from qkv.scripts.data.loading import public_names, read_split, splits
from qkv.scripts.data.pieces import InvalidRecord
from qkv.scripts.data.splits.division import divide_rows, group_columns, groups_of, text_sketches
from qkv.scripts.data.validation import RecordValidation, valid_rows
from qkv.scripts.recipes.schema import Recipe


@dataclass(frozen=True)
class TaggedWords(DataSet):
    """Rows of words in splits, and of each word the number of its tag in `names`."""

    words: Splits[list[str]]
    tags: Splits[list[int]]
    names: list[str]
    row_fields: ClassVar[Sequence[str]] = ("words", "tags")


def read_tagged_words(recipe: Recipe) -> TaggedWords:
    """Read words and tags, lists in the columns `text.column` and `text.label`; ValueError where one is missing."""
    where, invalid = recipe.data.source, RecordValidation(recipe.data.bad_records)
    if recipe.text.label is None:
        raise ValueError(f"architecture={recipe.model.architecture!r} learns tags; name their column: text.label=tags")
    names = ["train", *(name for name in ("validation", "test") if name in splits(where))]
    tables = {name: read_tagged(recipe, name, invalid) for name in names}
    rows = {name: [check_tagged(value) for value in table[column_of(recipe)]] for name, table in tables.items()}
    tags = {name: [own for _, own in both] for name, both in rows.items()}
    known = sorted({tag for own in tags["train"] for tag in own})
    number = {tag: index for index, tag in enumerate(known)}
    unknown = {tag for split in tags.values() for own in split for tag in own} - set(known)
    if unknown or len(known) < 2:
        what = f"tag {min(unknown)!r} is not among the" if unknown else "words need two tags or more, but there are"
        raise ValueError(f"{where}: {what} {len(known)} tags of column {recipe.text.label!r} in the training split")
    texts = {name: [" ".join(words) for words, _ in both] for name, both in rows.items()}
    division = divide_rows(text_sketches(texts), recipe, rarest_tags(tags), groups_of(tables, recipe))
    counts = {name: Counter(tag for tags in own for tag in tags) for name, own in division.of_lists(tags).items()}
    classes = {name: dict(sorted(own.items())) for name, own in counts.items()}
    return TaggedWords(
        **public_names(where),
        words=division.of_lists({name: [words for words, _ in both] for name, both in rows.items()}),
        tags=division.of_lists({name: [[number[tag] for tag in each] for each in own] for name, own in tags.items()}),
        names=known,
        invalid_records=invalid,
        report=division.report | {"classes": classes},
    )


def column_of(recipe: Recipe) -> str:
    """Return the name of the column that holds both words and tags."""
    return f"{recipe.text.column} and {recipe.text.label}"


def read_tagged(recipe: Recipe, split: str, invalid: RecordValidation) -> Dataset:
    """Read the valid rows of a split, with words and the names of their tags in one column."""
    words, tags = recipe.text.column, str(recipe.text.label)
    table: Any = read_split(recipe, [words, tags, *group_columns(recipe)], split)
    kind = getattr(table.features[tags], "feature", None)
    names = kind.names if isinstance(kind, ClassLabel) else None

    def join(record: Record) -> Record:
        own = record[tags] if names is None or record[tags] is None else [names[tag] for tag in record[tags]]
        return {column_of(recipe): json.dumps([record[words], own])}

    joined = table.map(join, remove_columns=[words, tags], desc="joining words and tags")
    return valid_rows(joined, {column_of(recipe): check_tagged}, invalid)


def check_tagged(value: str) -> tuple[list[str], list[str]]:
    """Return words and tags; InvalidRecord where there are none, or not a tag for each word."""
    words, tags = map(as_list, json.loads(value))
    if len(words) != len(tags):
        raise InvalidRecord(f"{len(words)} words, but {len(tags)} tags")
    if not all(word.strip() for word in words + tags):
        raise InvalidRecord("an empty word or tag")
    return words, tags


def as_list(value: Any) -> list[str]:
    """Return a list of words, given as such, as JSON, as Python writes it, or with spaces between them."""
    if isinstance(value, str):
        value = parse_list(value) if value.startswith("[") else value.split()
    if not isinstance(value, list) or not value or any(each is None for each in value):
        raise InvalidRecord("missing" if not value else f"{type(value).__name__}, expected lists of words and tags")
    return [str(each) for each in value]


def parse_list(text: str) -> Any:
    """Parse a list; InvalidRecord for another text."""
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(text)
        except (ValueError, SyntaxError, RecursionError):
            pass
    raise InvalidRecord("a list that does not end, or is written neither as JSON nor as Python does")


def rarest_tags(tags: Mapping[str, list[list[str]]]) -> dict[str, list[str]]:
    """Return the rarest tag in each row, by which rows are stratified: the others are in more of them."""
    counts = Counter(tag for own in tags["train"] for tag in set(own))
    return {name: [min(own, key=lambda tag: (counts[tag], tag)) for own in rows] for name, rows in tags.items()}
