"""Read corpora from the columns of files, folders and data sets of the Hub."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset

from qkv.scripts.data.columns import as_numbers
from qkv.scripts.data.corpus import STREAMED, Corpus, Splits, divide
from qkv.scripts.data.examples import InvalidRecord, Record, attempt
from qkv.scripts.data.loading import public_names, read_split, splits
from qkv.scripts.data.pretrained import pretrained_classes
from qkv.scripts.data.splits.division import divide_rows, group_columns, groups_of, text_sketches
from qkv.scripts.data.stream import Stream
from qkv.scripts.data.tokenization import MAKERS
from qkv.scripts.data.validation import (
    Checks,
    RecordValidation,
    check_class,
    check_label,
    check_number,
    check_text,
    checked_columns,
    valid_rows,
    validate,
)
from qkv.scripts.recipes.schema import Recipe

EVALUATED = 1000  # texts of a stream that are kept for validation, unless the recipe says how many


def read_corpus(recipe: Recipe) -> Corpus:
    """Read the valid texts of `data=`, or stream those for training; ValueError where columns are missing.

    Where there is no test split a part of the training is for it: see `splits/division.py`.
    """
    if recipe.data.streaming:
        return stream_corpus(recipe)
    columns, invalid = recipe.text, RecordValidation(recipe.data.bad_records)
    checks: dict[Any, Any] = dict.fromkeys(filter(None, (columns.column, columns.target, columns.pair)), check_text)
    if columns.label:
        checks[columns.label] = check_number if recipe.model.config.get("problem_type") == "regression" else check_class
    tables = read_tables(recipe, checks, invalid)
    texts, targets, pairs = (
        {name: list(table[column]) for name, table in tables.items()} if column else {}
        for column in (columns.column, columns.target, columns.pair)
    )
    numbers = read_numbers(tables, recipe)
    classes, known = number_labels(tables, recipe) if columns.label and not numbers else ({}, [])
    strata = {name: [known[label] for label in own] for name, own in classes.items()}
    if numbers:
        fifths: Any = np.quantile(numbers["train"], np.arange(1, 5) / 5)
        strata = {name: np.searchsorted(fifths, own).tolist() for name, own in numbers.items()}
    both = {name: list(map("\n".join, zip(own, pairs[name], strict=True))) for name, own in texts.items() if pairs}
    division = divide_rows(text_sketches(both or texts), recipe, strata, groups_of(tables, recipe))
    if numbers:
        division.report.pop("classes", None)
        division.report["split"] = division.report["split"].replace("each class", "each fifth of the numbers")
    return Corpus(
        **public_names(recipe.data.source), texts=division.of_lists(texts), targets=division.of_lists(targets),
        pairs=division.of_lists(pairs), labels=division.of_lists(classes), names=known,
        numbers=division.of_lists(numbers), invalid_records=invalid, report=division.report,
    )  # fmt: skip


def read_tables(recipe: Recipe, checks: Checks, invalid: RecordValidation) -> dict[str, Dataset]:
    """Read the valid rows of each split of a recipe's data, with the columns that are checked and the group."""
    columns = list(dict.fromkeys([*checked_columns(checks), *group_columns(recipe)]))
    names = ["train", *(name for name in splits(recipe.data.source) if name in ("validation", "test"))]
    tables: dict[str, Any] = {name: read_split(recipe, columns, name) for name in names}
    classes = {
        name: partial(check_label, names=tuple(kind.names))
        for name, kind in tables["train"].features.items()
        if isinstance(kind, ClassLabel) and checks.get(name) is check_class
    }
    return {name: valid_rows(table, {**checks, **classes}, invalid) for name, table in tables.items()}


def read_numbers(tables: Mapping[str, Dataset], recipe: Recipe) -> Splits[float]:
    """Return the numbers of each split that a regression predicts; none for classes.

    `problem_type` says which of them a column of labels has, else they are numbers where some have fractions.
    """
    kind, column = recipe.model.config.get("problem_type"), recipe.text.label
    if column is None or kind not in (None, "regression"):
        return {}
    if kind is None and not any(number % 1 for number in as_numbers(tables["train"][column]) or ()):
        return {}
    return {name: list(map(float, table[column])) for name, table in tables.items()}


def number_labels(tables: Mapping[str, Dataset], recipe: Recipe) -> tuple[Splits[int], list[str]]:
    """Return the labels of each split as numbers, and the names of the training's classes.

    A pretrained model that knows all of them keeps its own names and numbers. ValueError where all are one class, or
    where a split has a class that the training lacks.
    """
    column = str(recipe.text.label)
    named = getattr(tables["train"].features[column], "names", None)
    labels = {name: [named[each] if named else str(each) for each in own[column]] for name, own in tables.items()}
    if recipe.data.test_size < 1:
        check_classes(labels["train"], recipe.data.source, column)
    known = pretrained_classes(recipe.model.init, named or in_order(labels["train"]))
    if unknown := {label for own in labels.values() for label in own} - set(known):
        raise ValueError(
            f"label {min(unknown)!r} is not among the {len(known)} labels of the training split; give that split "
            "rows of it, or leave out the rows that have it"
        )
    number = {label: index for index, label in enumerate(known)}
    return {name: [number[label] for label in own] for name, own in labels.items()}, known


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names of classes in the order of their numbers, or of the alphabet."""
    different = set(names)
    are_numbers = all(name.removeprefix("-").isdecimal() for name in different)
    return sorted(different, key=lambda name: (int(name) if are_numbers else 0, name))


def check_classes(labels: Sequence[Any], where: str, column: str) -> None:
    """Raise ValueError where all labels are one class: there is nothing to learn."""
    if len(set(labels)) < 2:
        raise ValueError(
            f"all {len(labels)} rows of {where} have one class in column {column!r}, {str(labels[0])!r}; a classifier "
            "needs rows of two or more"
        )


def add_splits(tables: Mapping[str, Dataset], recipe: Recipe) -> dict[str, Dataset]:
    """Return tables in the splits that the recipe asks for."""
    rows = divide({name: len(table) for name, table in tables.items()}, recipe)
    return {name: tables[source].select(own) for name, (source, own) in rows.items()}


def stream_corpus(recipe: Recipe) -> Corpus:
    """Return a corpus whose training texts are a stream, and those for validation, `text.evaluated` at most.

    These are of the validation split, or of the part that the `holdout` keeps back. ValueError where a tokenizer would
    have to be trained on the stream.
    """
    kind, column = recipe.text.tokenizer, recipe.text.column
    if recipe.model.init is None and kind in MAKERS and kind != "bytes":
        raise ValueError(
            f"text.tokenizer={kind!r} is trained on all texts, which a stream never has; give the folder or Hub id of "
            "a trained one, or leave out streaming=true"
        )
    invalid = RecordValidation(recipe.data.bad_records)
    records = Stream.of(recipe, invalid, {column: check_text})
    held = islice(validation_records(recipe, records), recipe.text.evaluated or EVALUATED)
    kept = [record[column] for record in held]

    def stream(prepare: Any, length: int | None) -> Stream:
        return replace(records, prepare=lambda part: prepare([record[column] for record in part]), length=length)

    texts = {"validation": kept} if kept else {}
    names = public_names(recipe.data.source)
    return Corpus(**names, texts=texts, stream=stream, invalid_records=invalid, report=dict(STREAMED))


def validation_records(recipe: Recipe, stream: Stream) -> Iterator[Record]:
    """Yield valid records that are not trained on."""
    units = range(stream.units - stream.kept, stream.units)
    records = (record for unit in units for record in stream.read(unit, 0, 1))
    if "validation" in splits(recipe.data.source):
        records = iter(read_split(recipe, checked_columns(stream.checks), "validation", streaming=True))
    valid = (attempt(validate, record, stream.checks) for record in records)
    yield from (record for record in valid if not isinstance(record, InvalidRecord))
