"""Read corpora from the columns of files, folders and data sets of the Hub."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from math import isfinite
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset

from qkv.scripts.data.corpus import Corpus, Splits, divide
from qkv.scripts.data.examples import Record
from qkv.scripts.data.loading import public_names, read_split, splits
from qkv.scripts.data.pieces import InvalidRecord, attempt
from qkv.scripts.data.pretrained import pretrained_classes
from qkv.scripts.data.splits.division import divide_rows, group_columns, groups_of, text_sketches
from qkv.scripts.data.stream import Stream
from qkv.scripts.data.tokenization import MAKERS
from qkv.scripts.data.validation import Checks, RecordValidation, check_text, valid_rows, validate
from qkv.scripts.recipes.schema import Recipe

EVALUATED = 1000  # texts of a stream that are kept for validation, unless the recipe says how many


def read_corpus(recipe: Recipe) -> Corpus:
    """Read the valid texts of `data=`, or stream those for training; ValueError where columns are missing.

    Where there is no test split a part of the training is for it: see `splits/division.py`.
    """
    if recipe.data.streaming:
        return stream_corpus(recipe)
    columns, where = recipe.text, recipe.data.source
    invalid = RecordValidation(recipe.data.bad_records)
    needed = (columns.column, columns.target, columns.pair, columns.label)
    names = list(dict.fromkeys([*(name.partition(".")[0] for name in needed if name), *group_columns(recipe)]))
    wanted = ["train", *(name for name in ("validation", "test") if name in splits(where))]
    tables = {name: read_valid(recipe, name, checks(recipe), invalid, names) for name in wanted}
    texts, targets, pairs = (
        {name: values(table, column) for name, table in tables.items()} if column else {}
        for column in (columns.column, columns.target, columns.pair)
    )
    numbers = read_numbers(tables, recipe)
    classes, known = number_labels(tables, recipe) if columns.label and not numbers else ({}, [])
    strata = {name: [known[label] for label in own] for name, own in classes.items()} or quantiles(numbers)
    sketched = {name: list(map("\n".join, zip(own, pairs[name], strict=True))) for name, own in texts.items() if pairs}
    division = divide_rows(text_sketches(sketched or texts), recipe, strata, groups_of(tables, recipe))
    if numbers:
        division.report.pop("classes")
        division.report["split"] = division.report["split"].replace("each class", "each fifth of the numbers")
    return Corpus(
        **public_names(where), texts=division.of_lists(texts), targets=division.of_lists(targets),
        pairs=division.of_lists(pairs), labels=division.of_lists(classes), names=known,
        numbers=division.of_lists(numbers), invalid_records=invalid, report=division.report,
    )  # fmt: skip


def is_regression(table: Dataset, recipe: Recipe) -> bool:
    """Tell whether a column of labels holds numbers to be predicted: `problem_type` says so, or they have fractions."""
    kind, column = recipe.model.config.get("problem_type"), recipe.text.label
    if column is None or kind not in (None, "regression"):
        return False
    if kind == "regression":
        return True
    stored = getattr(table.features[column], "dtype", "")
    return stored.startswith("float") and any(value % 1 for value in table[column])


def read_numbers(tables: Mapping[str, Dataset], recipe: Recipe) -> Splits[float]:
    """Return the numbers of each split that a regression predicts, none for classes; ValueError for no numbers."""
    if not is_regression(tables["train"], recipe):
        return {}
    column = str(recipe.text.label)
    kind = getattr(tables["train"].features[column], "dtype", "list")
    if not kind.startswith(("float", "int", "uint")):
        raise ValueError(
            f"model.problem_type='regression' needs numbers in text.label={column!r} of {recipe.data.source}, which "
            f"holds {kind}; give a column of numbers, or leave out model.problem_type"
        )
    return {name: [float(value) for value in table[column]] for name, table in tables.items()}


def quantiles(numbers: Splits[float], parts: int = 5) -> Splits[Any]:
    """Return the fifth of the training's range of ranks that each number lies in, by which rows are stratified."""
    bounds: Any = np.quantile(numbers["train"], np.arange(1, parts) / parts) if numbers.get("train") else []
    return {name: np.searchsorted(bounds, own).tolist() for name, own in numbers.items()}


def read_valid(
    recipe: Recipe, split: str, checks: Checks, invalid: RecordValidation, columns: Sequence[str] = ()
) -> Dataset:
    """Read the valid records of a split, of the columns that are checked or of these."""
    table: Any = read_split(recipe, columns or list(checks), split)
    return valid_rows(table, checks, invalid)


def checks(recipe: Recipe) -> Checks:
    """Return what the columns of texts must hold."""
    languages: dict[str, list[str]] = {}
    for name in (recipe.text.column, recipe.text.target, recipe.text.pair):
        if name:
            column, _, language = name.partition(".")
            languages.setdefault(column, []).extend([language] if language else [])
    texts: Checks = {
        column: partial(check_translations, languages=tuple(names)) if names else check_text
        for column, names in languages.items()
    }
    regression = recipe.model.config.get("problem_type") == "regression"
    return {**texts, recipe.text.label: check_number if regression else check_class} if recipe.text.label else texts


def check_translations(value: Any, languages: Sequence[str]) -> Mapping[str, Any]:
    """Return the texts of a column by language; InvalidRecord where one of these is empty."""
    texts = translations(value)
    for name in languages:
        check_text(texts.get(name))
    return texts


def translations(value: Any) -> Mapping[str, Any]:
    """Return texts by language; files without nested columns hold them as JSON."""
    try:
        texts = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        texts = None
    if not isinstance(texts, Mapping):
        raise InvalidRecord("no texts by language")
    return texts


def value_of(value: Any, language: str) -> str:
    """Return the text of a value, or of one language of it."""
    return translations(value)[language] if language else value


def values(table: Dataset, name: str) -> list[str]:
    """Return the texts of a column, or of one language of it."""
    column, _, language = name.partition(".")
    return [value_of(value, language) for value in table[column]]


def stream_corpus(recipe: Recipe) -> Corpus:
    """Return a corpus whose training texts are a stream, and those for validation, `text.evaluated` at most.

    These are of the validation split, or of what the `holdout` keeps back. ValueError where a tokenizer would have to
    be trained on the stream.
    """
    kind, (column, _, language) = recipe.text.tokenizer, recipe.text.column.partition(".")
    if recipe.model.init is None and kind in MAKERS and kind != "bytes":
        raise ValueError(
            f"text.tokenizer={kind!r} is trained on all texts, which a stream never has; give the folder or Hub id of "
            "a trained one, or leave out streaming=true"
        )

    def texts(records: Sequence[Record]) -> list[str]:
        return [value_of(record[column], language) for record in records]

    invalid = RecordValidation(recipe.data.bad_records)
    records = Stream.of(recipe, invalid, checks(recipe))
    kept = texts(list(islice(validation_records(recipe, records), recipe.text.evaluated or EVALUATED)))
    return Corpus(
        **public_names(recipe.data.source),
        texts={"validation": kept} if kept else {},
        stream=lambda prepare, length: replace(records, prepare=lambda part: prepare(texts(part)), length=length),
        invalid_records=invalid,
        report={"split": "a stream, whose rows are not compared with each other", "leaked": {}},
    )


def validation_records(recipe: Recipe, stream: Stream) -> Iterator[Record]:
    """Yield valid records that are not trained on."""
    where = recipe.data.source
    if "validation" in splits(where):
        records = iter(read_split(recipe, list(stream.checks), "validation", streaming=True))
    else:
        units = range(stream.units - stream.kept, stream.units)
        records = (record for unit in units for record in stream.read(unit, 0, 1))
    for record in records:
        valid = attempt(partial(validate, record, stream.checks))
        if not isinstance(valid, InvalidRecord):
            yield valid


def add_splits(tables: Mapping[str, Dataset], recipe: Recipe) -> dict[str, Dataset]:
    """Return tables in the splits that the recipe asks for."""
    rows = divide({name: len(table) for name, table in tables.items()}, recipe)
    return {name: tables[source].select(own) for name, (source, own) in rows.items()}


def check_class(value: Any) -> Any:
    """Return the name or number of a class, or a number; InvalidRecord where there is none."""
    unknown = isinstance(value, int) and value == -1  # as in data sets of the Hub
    if unknown or value is None or value != value or (isinstance(value, str) and not value.strip()):
        raise InvalidRecord("missing")
    if isinstance(value, float) and not isfinite(value):
        raise InvalidRecord(f"{value} is no finite number")
    return value


def check_number(value: Any) -> float:
    """Return a number that is finite."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidRecord("missing" if value is None else f"{type(value).__name__}, expected a number")
    if not isfinite(value):
        raise InvalidRecord(f"{value} is no finite number")
    return value


def check_classes(labels: Sequence[Any], where: str, column: str) -> None:
    """Raise ValueError where all labels are one class: there is nothing to learn."""
    if len(set(labels)) < 2:
        raise ValueError(
            f"all {len(labels)} rows of {where} have one class in column {column!r}, {str(labels[0])!r}; a classifier "
            "needs rows of two or more"
        )


def number_labels(tables: Mapping[str, Dataset], recipe: Recipe) -> tuple[Splits[int], list[str]]:
    """Return the labels of each split as numbers, and their names: those of the training.

    A pretrained model that knows all of them keeps its own names and numbers.
    """
    column = str(recipe.text.label)
    check_classes(tables["train"][column], recipe.data.source, column)
    kind = tables["train"].features[column]
    if isinstance(kind, ClassLabel):
        known = pretrained_classes(recipe.model.init, kind.names)
        numbers = [known.index(name) for name in kind.names]
        return {name: [numbers[value] for value in table[column]] for name, table in tables.items()}, known
    known = pretrained_classes(recipe.model.init, sorted({str(value) for value in tables["train"][column]}))
    number = {value: index for index, value in enumerate(known)}
    unknown = {str(value) for table in tables.values() for value in table[column]} - set(known)
    if unknown:
        raise ValueError(
            f"label {sorted(unknown)[0]!r} is not among the {len(known)} labels of the training split; give that split "
            "rows of it, or leave out the rows that have it"
        )
    return {name: [number[str(value)] for value in table[column]] for name, table in tables.items()}, known
