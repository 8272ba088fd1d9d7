"""What else can be read? Texts of files, folders and the Hub, as `source.py` finds them, by the names of columns."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from datasets import ClassLabel, Dataset

from qkv.scripts.data.corpus import Corpus, spread
from qkv.scripts.data.loading import called, read, splits
from qkv.scripts.data.readers import Fault, Record
from qkv.scripts.data.stream import Stream, attempt
from qkv.scripts.data.tokenization import MAKERS
from qkv.scripts.data.validation import Checks, Complaints, sift, text
from qkv.scripts.recipes.schema import Recipe

Prepare = Callable[[Sequence[str], Sequence[str]], list[list[Record]]]
# Texts of a stream that are looked at on the way, unless the recipe says how many.
SHOWN = 1000
# Every so-many-th record of data without a test split is for the test.
TENTH = 10


@dataclass(frozen=True)
class Languages:
    """A check of a column that holds a text in each of several languages, as translations on the Hub do."""

    names: tuple[str, ...]

    def __call__(self, value: Any) -> Any:
        """The texts, none of those in these languages empty."""
        found = languages(value)
        for name in self.names:
            text(found.get(name))
        return found


def outside(recipe: Recipe, complaints: Complaints) -> Corpus:
    """The texts of `data=`, without bad records, which go to the complaints; ValueError where columns are missing.

    Where there is no test split every tenth record is for the test; a validation split is watched.
    """
    columns = recipe.text
    names = [name.partition(".")[0] for name in (columns.column, columns.target, columns.label) if name]
    there = splits(recipe.data)
    wanted = ["train", *(name for name in ("validation", "test") if name in there)]
    tables = {name: table(recipe, name, names, complaints) for name in wanted}
    if "test" not in tables:
        whole = tables["train"]
        tables["test"] = whole.select(range(0, len(whole), TENTH))
        tables["train"] = whole.select([index for index in range(len(whole)) if index % TENTH])
    texts = {name: values(found, columns.column) for name, found in tables.items()}
    targets = {name: values(found, columns.target) for name, found in tables.items()} if columns.target else {}
    labels, known = numbered(tables, columns.label) if columns.label else ({}, [])
    name = called(recipe.data)
    return Corpus(name, name, address(recipe), texts, labels, known, targets)


def table(recipe: Recipe, split: str, names: Sequence[str], complaints: Complaints) -> Dataset:
    """The good records of a split."""
    found: Any = read(recipe.data, split=split, documents=recipe.documents, columns=list(dict.fromkeys(names)))
    return sift(found, checks(recipe), complaints)


def checks(recipe: Recipe) -> Checks:
    """What the columns of texts must hold."""
    wanted = [name for name in (recipe.text.column, recipe.text.target) if name]
    spoken: dict[str, tuple[str, ...]] = {}
    for column, _, language in (name.partition(".") for name in wanted):
        spoken[column] = (*spoken.get(column, ()), *([language] if language else []))
    return {column: Languages(names) if names else text for column, names in spoken.items()}


def languages(value: Any) -> Mapping[str, Any]:
    """The texts by language; files that know no nested columns hold them as JSON."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if not isinstance(found, Mapping):
        raise Fault("no texts by language")
    return found


def values(found: Dataset, name: str) -> list[str]:
    """The texts of a column, or of one language of it."""
    column, _, language = name.partition(".")
    return [languages(value)[language] for value in found[column]] if language else list(found[column])


def streamed(recipe: Recipe, prepare: Prepare, length: int | None = None) -> tuple[Stream, Corpus]:
    """The training texts of `data=` as a stream, and those that are looked at on the way, `text.evaluated` at most.

    These are of the validation split, or of what the `holdout` keeps back. `prepare` makes examples of texts and their
    targets. ValueError where a tokenizer would have to be trained on the stream.
    """
    if recipe.init is None and recipe.text.tokenizer in MAKERS and recipe.text.tokenizer != "bytes":
        raise ValueError(
            f"text.tokenizer={recipe.text.tokenizer!r} is trained on all texts, which a stream never has; give the "
            "folder or Hub id of one that there is, or leave out streaming=true"
        )
    columns = recipe.text

    def prepared(records: Sequence[Record]) -> list[list[Record]]:
        targets = [value(record, columns.target) for record in records] if columns.target else []
        return prepare([value(record, columns.column) for record in records], targets)

    stream = Stream.of(recipe, Complaints(recipe.bad_records), checks(recipe), prepare=prepared, length=length)
    watched = list(islice(kept_back(recipe, stream), columns.evaluated or SHOWN))
    texts = {"validation": [value(record, columns.column) for record in watched]}
    targets = {"validation": [value(record, columns.target) for record in watched]} if columns.target else {}
    name = called(recipe.data)
    return stream, Corpus(name, name, address(recipe), texts if watched else {}, targets=targets)


def kept_back(recipe: Recipe, stream: Stream) -> Iterator[Record]:
    """Good records that are not trained on."""
    if "validation" in splits(recipe.data):
        names = list(stream.checks)
        records = iter(read(recipe.data, split="validation", streaming=True, documents=recipe.documents, columns=names))
    else:
        units = range(stream.units - stream.kept, stream.units)
        records = (record for unit in units for record in stream.read(unit, 0, 1))
    for record in records:
        found = attempt(record, stream.checks)
        if not isinstance(found, Fault):
            yield found


def value(record: Record, name: str) -> str:
    """The text in a column of a record, or in one language of it."""
    column, _, language = name.partition(".")
    found: str = languages(record[column])[language] if language else record[column]
    return found


def divided(tables: dict[str, Dataset], recipe: Recipe) -> dict[str, Dataset]:
    """The same with a test and, if there is a `holdout`, a validation split; of these the first `text.evaluated`."""
    tables = dict(tables)
    shares = {"test": 1 / TENTH, "validation": recipe.holdout}
    for name, share in shares.items():
        if name not in tables and share:
            train = tables["train"]
            held = spread(len(train), share)
            tables[name] = train.select([index for index, kept in enumerate(held) if kept])
            tables["train"] = train.select([index for index, kept in enumerate(held) if not kept])
    most = recipe.text.evaluated
    first = {
        name: table.select(range(min(most, len(table)))) for name, table in tables.items() if most and name != "train"
    }
    return {**tables, **first}


def address(recipe: Recipe) -> str:
    """Where the data are on the web, if they are from the Hub."""
    hub = not Path(recipe.data).exists()
    return "https://huggingface.co/datasets/" + recipe.data.partition(":")[0].partition("@")[0] if hub else ""


def numbered(tables: Mapping[str, Dataset], column: str) -> tuple[dict[str, list[int]], list[str]]:
    """The labels of each split as numbers, and their names, those of the training."""
    kind = tables["train"].features[column]
    if isinstance(kind, ClassLabel):
        return {name: list(found[column]) for name, found in tables.items()}, list(kind.names)
    known = sorted({str(value) for value in tables["train"][column]})
    number = {value: index for index, value in enumerate(known)}
    unknown = {str(value) for found in tables.values() for value in found[column]} - set(known)
    if unknown:
        raise ValueError(f"label {sorted(unknown)[0]!r} is not among the {len(known)} labels of the training split")
    return {name: [number[str(value)] for value in found[column]] for name, found in tables.items()}, known
