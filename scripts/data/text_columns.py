"""Read corpora, tagged words and chains with their structures from the columns of your own data.

In dot-bracket notation `((...))` has the pairs (0, 6) and (1, 5), a dot is a residue without one; pairs that cross
others stand in brackets of another kind: `((..[[.))..]]`. Source: Hofacker et al. 1994,
https://doi.org/10.1007/BF00818163
"""

import ast
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain, compress, islice
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset
from numpy.typing import NDArray

from qkv.scripts.data.columns import BRACKETS, UNPAIRED, Column
from qkv.scripts.data.corpus import STREAMED, Corpus, Splits, prefixed
from qkv.scripts.data.examples import ORIGIN, InvalidRecord, Record, attempt
from qkv.scripts.data.loading import public_names, read_split, splits
from qkv.scripts.data.own_tables import class_names, count_files, label_column, labels_of, rarest, valid_tables
from qkv.scripts.data.pretrained import pretrained_classes
from qkv.scripts.data.read_report import ReadReport
from qkv.scripts.data.splits.division import class_counts, divide_rows
from qkv.scripts.data.splits.duplicates import text_sketches
from qkv.scripts.data.stream import Stream
from qkv.scripts.data.tokenization import MAKERS
from qkv.scripts.data.validation import (
    Check,
    RecordValidation,
    check_class,
    check_flag,
    check_number,
    check_text,
    checked_columns,
    validate,
)
from qkv.scripts.recipes.schema import Recipe

MULTI_LABEL = "multi_label_classification"
EVALUATED = 1000  # texts of a stream that are kept for validation, unless the recipe sets another number


def read_corpus(recipe: Recipe) -> Corpus:
    """Read the valid texts of `data=`, or stream the training texts."""
    if recipe.data.streaming:
        return stream_corpus(recipe)
    text, names = recipe.text, list[str]()
    columns = {"texts": text.column, "targets": text.target, "pairs": text.pair, "tasks": text.task}
    columns = {role: column for role, column in columns.items() if column}
    checks: dict[Any, Any] = dict.fromkeys(columns.values(), check_text) | label_checks(recipe)
    tables, facts = valid_tables(recipe, checks)
    lists: dict[str, Splits[Any]] = {
        role: {name: table[column][:] for name, table in tables.items()} for role, column in columns.items()
    }
    strata: Splits[Any] = lists.get("tasks", {})
    if numbers := read_numbers(tables, recipe, facts["read"]):
        lists["numbers"] = numbers
    elif has_several(recipe):
        sets, names = sets_of_labels(tables, recipe)
        lists["labels"] = {name: [[int(each in own) for each in names] for own in rows] for name, rows in sets.items()}
        strata = rarest(sets)
    elif text.label:
        strata, names = labels_of(tables, recipe, text.label)
        numbered = {name: number for number, name in enumerate(names)}
        lists["labels"] = {name: [numbered[each] for each in own] for name, own in strata.items()}
    compared = [lists[role] for role in ("tasks", "texts", "pairs") if role in lists]
    both = {name: list(map("\n".join, zip(*(own[name] for own in compared), strict=True))) for name in tables}
    division = divide_rows(text_sketches(both), recipe, tables, strata)
    divided: dict[str, Any] = {role: division.of_lists(own) for role, own in lists.items()}
    if has_several(recipe):
        of_rows = {name: [compress(names, row) for row in rows] for name, rows in divided["labels"].items()}
        division.report["classes"] = class_counts({name: [*chain(*rows)] for name, rows in of_rows.items()})
    return with_prefixes(Corpus(**facts, **divided, names=names, report=division.report))


def with_prefixes(corpus: Corpus) -> Corpus:
    """Put the name of its task before each text of a corpus of several tasks, and count their rows in its report."""
    if not corpus.tasks:
        return corpus
    # Its classes are the tasks, each of which has its share in every split.
    report = {key: value for key, value in corpus.report.items() if key != "classes"}
    texts = {name: list(map(prefixed, corpus.tasks[name], own)) for name, own in corpus.texts.items()}
    return replace(corpus, texts=texts, report=report | {"tasks": class_counts(corpus.tasks)})


def has_several(recipe: Recipe) -> bool:
    """Tell whether a text has any number of classes."""
    return recipe.text.label is not None and recipe.model.config.get("problem_type") == MULTI_LABEL


def label_checks(recipe: Recipe) -> dict[str, Any]:
    """Return the check of each column of labels: classes, numbers, lists of classes, or several columns of 0 and 1."""
    label = recipe.text.label
    if label is None:
        return {}
    if has_several(recipe) and "," in label:
        return dict.fromkeys(label.split(","), check_flag)
    is_regression = recipe.model.config.get("problem_type") == "regression"
    return {label: check_several if has_several(recipe) else check_number if is_regression else check_class}


def sets_of_labels(tables: Mapping[str, Dataset], recipe: Recipe) -> tuple[Splits[list[str]], list[str]]:
    """Return the classes of each text, of a column of lists or of columns of 0 and 1, and all classes in order."""
    label = str(recipe.text.label)
    if "," in label:
        columns, flags = label.split(","), dict[str, list[Any]]()
        for name, table in tables.items():
            rows = zip(*(map(check_flag, table[column]) for column in columns), strict=True)
            flags[name] = [list(compress(columns, row)) for row in rows]
        return flags, pretrained_classes(recipe.model.init, columns)
    kind = getattr(tables["train"].features[label], "feature", None)
    named = kind.names if isinstance(kind, ClassLabel) else None
    sets = {name: [check_several(each) for each in table[label]] for name, table in tables.items()}
    if named:
        sets = {name: [[named[int(each)] for each in own] for own in rows] for name, rows in sets.items()}
    return sets, class_names({name: chain(*rows) for name, rows in sets.items()}, recipe, label, named)


def check_several(value: Any) -> list[str]:
    """Return the classes of a text, perhaps none: a list of names, its JSON, or one name."""
    if value is None or (isinstance(value, str) and not value.startswith("[")):
        return [check_text(value)]
    names = [] if value in ("[]", []) else as_list(value)
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InvalidRecord(f"{twice[0]!r} twice, expected a list of the names of its classes")
    return names


def read_numbers(tables: Mapping[str, Dataset], recipe: Recipe, read: ReadReport) -> Splits[float]:
    """Return the numbers of each split that a regression predicts; none for classes.

    `problem_type` says which of them a column of labels has, else they are numbers where some have fractions.
    ValueError where some have a decimal comma and others a point.
    """
    kind, column = recipe.model.config.get("problem_type"), recipe.text.label
    if column is None or kind not in (None, "regression"):
        return {}
    labels = Column(column).add([] if kind else tables["train"][column][:])
    if kind is None and ("whole" in labels.holds or not labels.is_numeric):
        return {}
    texts = [str(value) for table in tables.values() for value in table[column]]
    if commas := [text for text in texts if "," in text]:
        if points := [text for text in texts if "." in text]:
            raise ValueError(
                f"{recipe.data.source}: column {column!r} has {commas[0]!r} and {points[0]!r}; write all its numbers "
                "with one decimal mark, and without thousands"
            )
        read.mended[f"{column}: decimal commas"] = len(commas)
    return {name: list(map(check_number, table[column])) for name, table in tables.items()}


def stream_corpus(recipe: Recipe) -> Corpus:
    """Return a corpus whose training texts are a stream, with `text.evaluated` texts for validation at most."""
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
    there = read_split(recipe, None, streaming=True).column_names or []
    found = ReadReport([column], [each for each in there if each not in (*ORIGIN, column)])
    count_files(recipe, {}, found)
    return Corpus(**names, texts=texts, stream=stream, invalid_records=invalid, report=dict(STREAMED), read=found)


def validation_records(recipe: Recipe, stream: Stream) -> Iterator[Record]:
    """Yield valid records that are not trained on."""
    units = range(stream.units - stream.kept, stream.units)
    records = (record for unit in units for record in stream.read(unit, 0, 1))
    if "validation" in splits(recipe.data.source):
        records = iter(read_split(recipe, checked_columns(stream.checks), "validation", streaming=True))
    valid = (attempt(validate, record, stream.checks) for record in records)
    yield from (record for record in valid if not isinstance(record, InvalidRecord))


class TaggedWords(Corpus):
    """A corpus whose texts are lists of words, and whose labels have the number of each word's tag."""


def read_tagged_words(recipe: Recipe) -> TaggedWords:
    """Read words and tags, in splits by the rarest tag of each row; ValueError where a column is missing."""
    column, label = recipe.text.column, label_column(recipe, "tags")
    tables, facts = valid_tables(recipe, {(column, label): check_tagged})
    rows = {name: list(map(check_tagged, table[column], table[label])) for name, table in tables.items()}
    words, tags = ({name: [row[side] for row in own] for name, own in rows.items()} for side in (0, 1))
    kind = getattr(tables["train"].features[label], "feature", None)
    if isinstance(kind, ClassLabel):
        tags = {name: [[kind.names[int(tag)] for tag in own] for own in rows] for name, rows in tags.items()}
    known = class_names({name: chain(*rows) for name, rows in tags.items()}, recipe, label)
    texts = {name: [" ".join(each) for each in own] for name, own in words.items()}
    division = divide_rows(text_sketches(texts), recipe, tables, rarest(tags))
    divided = division.of_lists(tags)
    numbers = {name: [list(map(known.index, own)) for own in rows] for name, rows in divided.items()}
    report = division.report | {"classes": class_counts({name: [*chain(*rows)] for name, rows in divided.items()})}
    return TaggedWords(**facts, texts=division.of_lists(words), labels=numbers, names=known, report=report)


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
    value = as_object(value)
    if isinstance(value, str):
        raise InvalidRecord("a list that does not end, or is written neither as JSON nor as Python does")
    if not isinstance(value, list) or not value or any(each is None for each in value):
        raise InvalidRecord("missing" if not value else f"{type(value).__name__}, expected lists of words and tags")
    return [str(each) for each in value]


def as_object(value: Any) -> Any:
    """Return the list or object that a text of JSON or of Python holds, as cells of tables do; else the value."""
    for parse in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, RecursionError):
            value = parse(value) if isinstance(value, str) and value[:1] in ("[", "{") else value
    return value


class SecondaryStructures(Corpus):
    """A corpus of chains, a letter for each residue; targets are the residues that pair, in dot-bracket notation."""


def read_structures(recipe: Recipe) -> SecondaryStructures:
    """Read chains and structures in dot-bracket notation."""
    return SecondaryStructures(**read_chains(recipe, "structure", check_folded, str.strip))


def read_chains(recipe: Recipe, example: str, check: Check, written: Callable[[Any], str]) -> dict[str, Any]:
    """Read the fields of a corpus of chains and their targets, the columns `text.column` and `text.label`.

    Targets are checked beside their chains, and `written` as texts. ValueError where a column is missing.
    """
    column, label = recipe.text.column, label_column(recipe, example)
    tables, facts = valid_tables(recipe, {(column, label): check})
    chains = {name: list(map(str.strip, table[column])) for name, table in tables.items()}
    targets = {name: list(map(written, table[label])) for name, table in tables.items()}
    division = divide_rows(text_sketches(chains), recipe, tables)
    divided = {"texts": division.of_lists(chains), "targets": division.of_lists(targets)}
    return {**facts, **divided, "report": division.report}


def check_chain(value: Any) -> str:
    """Return a chain without the spaces around it; InvalidRecord where it is empty, or has a space within."""
    chain = check_text(value).strip()
    if any(letter.isspace() for letter in chain):
        raise InvalidRecord("a space within the chain, of which each letter is a residue")
    return chain


def check_folded(sequence: Any, structure: Any) -> None:
    """Raise InvalidRecord for no chain or structure, or for one of each with different lengths."""
    residues, places = len(check_chain(sequence)), check_text(structure).strip()
    if residues != len(places):
        raise InvalidRecord(f"{residues} residues, but a structure of {len(places)}")
    partners_of(places)


def partners_of(structure: str) -> NDArray[np.int64]:
    """Return the place of each residue's partner (L,), -1 without one."""
    opened: dict[str, list[int]] = {bracket: [] for bracket in BRACKETS.values()}
    partners = np.full(len(structure), -1)
    for place, mark in enumerate(structure):
        if mark in opened:
            opened[mark].append(place)
        elif mark in BRACKETS:
            if not opened[BRACKETS[mark]]:
                raise InvalidRecord(f"{mark!r} at place {place + 1} closes nothing")
            first = opened[BRACKETS[mark]].pop()
            partners[first], partners[place] = place, first
        elif mark not in UNPAIRED:
            raise InvalidRecord(f"{mark!r} at place {place + 1} is no dot or bracket")
    for place in sorted(place for places in opened.values() for place in places):
        raise InvalidRecord(f"{structure[place]!r} at place {place + 1} is never closed")
    return partners
