"""Read corpora from the columns of files, folders and data sets of the Hub."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from datasets import ClassLabel, Dataset

from qkv.scripts.data.corpus import Corpus, divide
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
    names = [name.partition(".")[0] for name in (columns.column, columns.target, columns.label) if name]
    names += group_columns(recipe)
    wanted = ["train", *(name for name in ("validation", "test") if name in splits(where))]
    tables = {name: read_valid(recipe, name, checks(recipe), invalid, list(dict.fromkeys(names))) for name in wanted}
    texts = {name: values(table, columns.column) for name, table in tables.items()}
    targets = {name: values(table, columns.target) for name, table in tables.items()} if columns.target else {}
    classes = pretrained_classes(recipe.model.init)
    labels, known = number_labels(tables, columns.label, where, classes) if columns.label else ({}, [])
    names_of = {name: [known[label] for label in own] for name, own in labels.items()}
    division = divide_rows(text_sketches(texts), recipe, names_of, groups_of(tables, recipe))
    return Corpus(
        **public_names(where),
        texts=division.of_lists(texts),
        labels=division.of_lists(labels),
        names=known,
        targets=division.of_lists(targets),
        invalid_records=invalid,
        report=division.report,
    )


def read_valid(
    recipe: Recipe, split: str, checks: Checks, invalid: RecordValidation, columns: Sequence[str] = ()
) -> Dataset:
    """Read the valid records of a split, of the columns that are checked or of these."""
    table: Any = read_split(recipe, columns or list(checks), split)
    return valid_rows(table, checks, invalid)


def checks(recipe: Recipe) -> Checks:
    """Return what the columns of texts must hold."""
    languages: dict[str, list[str]] = {}
    for name in (recipe.text.column, recipe.text.target):
        if name:
            column, _, language = name.partition(".")
            languages.setdefault(column, []).extend([language] if language else [])
    texts: Checks = {
        column: partial(check_translations, languages=tuple(names)) if names else check_text
        for column, names in languages.items()
    }
    return {**texts, recipe.text.label: check_class} if recipe.text.label else texts


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
    """Return the name or number of a class; InvalidRecord where there is none."""
    if value is None or value == -1 or (isinstance(value, str) and not value.strip()):
        raise InvalidRecord("missing")
    return value


def check_classes(labels: Sequence[Any], where: str, column: str) -> None:
    """Raise ValueError where all labels are one class: there is nothing to learn."""
    if len(set(labels)) < 2:
        raise ValueError(
            f"all {len(labels)} rows of {where} have one class in column {column!r}, {str(labels[0])!r}; a classifier "
            "needs rows of two or more"
        )


def number_labels(
    tables: Mapping[str, Dataset], column: str, where: str, pretrained: Sequence[str] = ()
) -> tuple[dict[str, list[int]], list[str]]:
    """Return the labels of each split as numbers, and their names: those of the training.

    A `pretrained` model that knows all of them keeps its own names and numbers.
    """
    check_classes(tables["train"][column], where, column)
    kind = tables["train"].features[column]
    if isinstance(kind, ClassLabel):
        return {name: list(table[column]) for name, table in tables.items()}, list(kind.names)
    known = sorted({str(value) for value in tables["train"][column]})
    known = list(pretrained) if set(known) <= set(pretrained) else known
    number = {value: index for index, value in enumerate(known)}
    unknown = {str(value) for table in tables.values() for value in table[column]} - set(known)
    if unknown:
        raise ValueError(f"label {sorted(unknown)[0]!r} is not among the {len(known)} labels of the training split")
    return {name: [number[str(value)] for value in table[column]] for name, table in tables.items()}, known
