"""Read corpora from the columns of files, folders and data sets of the Hub."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from datasets import Dataset

from qkv.scripts.data.columns import as_numbers
from qkv.scripts.data.corpus import STREAMED, Corpus, Splits
from qkv.scripts.data.examples import InvalidRecord, Record, attempt
from qkv.scripts.data.loading import public_names, read_split, splits
from qkv.scripts.data.own_tables import labels_of, valid_tables
from qkv.scripts.data.splits.division import divide_rows
from qkv.scripts.data.splits.duplicates import text_sketches
from qkv.scripts.data.stream import Stream
from qkv.scripts.data.tokenization import MAKERS
from qkv.scripts.data.validation import (
    RecordValidation,
    check_class,
    check_number,
    check_text,
    checked_columns,
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
    text, names = recipe.text, list[str]()
    columns = {"texts": text.column, "targets": text.target, "pairs": text.pair}
    columns = {role: column for role, column in columns.items() if column}
    checks: dict[Any, Any] = dict.fromkeys(columns.values(), check_text)
    if text.label:
        checks[text.label] = check_number if recipe.model.config.get("problem_type") == "regression" else check_class
    tables, facts = valid_tables(recipe, checks)
    lists: dict[str, Splits[Any]] = {
        role: {name: table[column][:] for name, table in tables.items()} for role, column in columns.items()
    }
    strata: Splits[Any] = {}
    if numbers := read_numbers(tables, recipe):
        fifths: Any = np.quantile(numbers["train"], np.arange(1, 5) / 5)
        lists["numbers"] = numbers
        strata = {name: np.searchsorted(fifths, own).tolist() for name, own in numbers.items()}
    elif text.label:
        strata, names = labels_of(tables, recipe, text.label)
        numbered = {name: number for number, name in enumerate(names)}
        lists["labels"] = {name: [numbered[each] for each in own] for name, own in strata.items()}
    compared = [lists[role] for role in ("texts", "pairs") if role in lists]
    both = {name: list(map("\n".join, zip(*(own[name] for own in compared), strict=True))) for name in tables}
    division = divide_rows(text_sketches(both), recipe, tables, strata)
    if numbers:
        division.report.pop("classes", None)
        division.report["split"] = division.report["split"].replace("each class", "each fifth of the numbers")
    divided: dict[str, Any] = {role: division.of_lists(own) for role, own in lists.items()}
    return Corpus(**facts, **divided, names=names, report=division.report)


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
    kept = [row[column] for row in islice(validation_records(recipe, records), recipe.text.evaluated or EVALUATED)]

    def stream(prepare: Any, length: int | None) -> Stream:
        return replace(records, prepare=lambda part: prepare([record[column] for record in part]), length=length)

    names, texts = public_names(recipe.data.source), {"validation": kept} if kept else {}
    return Corpus(**names, texts=texts, stream=stream, invalid_records=invalid, report=dict(STREAMED))


def validation_records(recipe: Recipe, stream: Stream) -> Iterator[Record]:
    """Yield valid records that are not trained on."""
    units = range(stream.units - stream.kept, stream.units)
    records = (record for unit in units for record in stream.read(unit, 0, 1))
    if "validation" in splits(recipe.data.source):
        records = iter(read_split(recipe, checked_columns(stream.checks), "validation", streaming=True))
    valid = (attempt(validate, record, stream.checks) for record in records)
    yield from (record for record in valid if not isinstance(record, InvalidRecord))
