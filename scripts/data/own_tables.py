"""Read the valid rows of your own data in splits, and name their classes."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unicodedata import normalize

from datasets import ClassLabel, Dataset, DatasetDict

from qkv.scripts.common.environment import is_local
from qkv.scripts.common.phases import say
from qkv.scripts.data.columns import LOCATED, media_of
from qkv.scripts.data.examples import ORIGIN
from qkv.scripts.data.formats.readers import TABLES
from qkv.scripts.data.loading import local_splits, public_names, read_split, select, splits, undecoded
from qkv.scripts.data.local_files import ending, files_below, found_files
from qkv.scripts.data.pretrained import pretrained_classes
from qkv.scripts.data.read_report import ReadReport
from qkv.scripts.data.validation import Checks, RecordValidation, check_class, check_label, checked_columns, valid_rows
from qkv.scripts.recipes.schema import Recipe


def valid_tables(recipe: Recipe, checks: Checks) -> tuple[dict[str, Dataset], dict[str, Any]]:
    """Read the checked columns of the valid rows of each split, and return the fields of their data set."""
    read = ReadReport()
    return checked_tables(read_tables(recipe, checked_columns(checks), read), recipe, checks, read)


def read_tables(
    recipe: Recipe, columns: Sequence[str], read: ReadReport, optional: Sequence[str] = ()
) -> dict[str, Dataset]:
    """Read columns of each split, and `optional` ones that exist; of a stream only the evaluated splits."""
    columns = list(dict.fromkeys([*columns, *filter(None, [recipe.data.group])]))
    evaluated = [name for name in splits(recipe.data.source) if name in ("validation", "test")]
    tables = dict[str, Dataset]()
    for name in [*([] if recipe.data.streaming else ["train"]), *evaluated]:
        table: Any = read_split(recipe, None, name)
        there = [each for each in table.column_names if each not in ORIGIN]
        table = undecoded(table, None if optional else columns, recipe.data.source)
        kept = {*select(table.column_names, columns, recipe.data.source), *optional}
        tables[name] = table.select_columns([each for each in table.column_names if each in kept])
        read.columns = [each for each in tables[name].column_names if each not in ORIGIN]
        used = {part for each in read.columns for part in (each, each.partition(".")[0])}
        read.unused = [*dict.fromkeys(read.unused + [each for each in there if each not in used])]
    count_files(recipe, tables, read)
    return tables


def count_files(recipe: Recipe, tables: Mapping[str, Dataset], read: ReadReport) -> None:
    """Count the files of a folder or file that were read, those that tables name among them, and the others."""
    files = local_splits(recipe.data.source) if is_local(recipe.data.source) else DatasetDict()
    if isinstance(files, DatasetDict):
        return
    root, paths = Path(recipe.data.source), [path for own in files.values() for path in own]
    read.files, read.left_out = Counter(map(ending, paths)), read.left_out + found_files(root)[1]
    columns = [table[name] for table in tables.values() for name in LOCATED if name in table.column_names]
    if ending(paths[0]) not in TABLES or recipe.data.streaming or (columns and ending(paths[0]) == ".parquet"):
        return
    values = (value["path"] if isinstance(value, dict) else value for column in columns for value in column if value)
    named = {os.path.normpath(path) for path in values}
    media = [path for path in (files_below(root)[0] if root.is_dir() else ()) if media_of(path.name)]
    read.files.update(ending(Path(path)) for path in named if Path(path).is_file())
    read.left_out.update(ending(path) for path in media if os.path.normpath(path.absolute()) not in named)


def checked_tables(
    tables: Mapping[str, Dataset], recipe: Recipe, checks: Checks, read: ReadReport
) -> tuple[dict[str, Dataset], dict[str, Any]]:
    """Return the valid rows of tables, but no split without classes, and the fields of their data set."""
    log, valid = RecordValidation(recipe.data.bad_records), dict[str, Dataset]()
    for name, table in tables.items():
        classes = {
            column: partial(check_label, names=tuple(kind.names))
            for column, kind in table.features.items()
            if isinstance(kind, ClassLabel) and checks.get(column) is check_class
        }
        labels = [each for each in table.column_names if checks.get(each) is check_class]
        absent = {each: (None, -1) if each in classes else (None,) for each in labels}
        if name != "train" and any(all(value in no for value in table[each]) for each, no in absent.items()):
            read.left_out[f"rows of the {name} split, which have no classes:"] = len(table)
        else:
            valid[name] = valid_rows(table, {**checks, **classes}, log, processes=recipe.data.workers or None)
    read.mended += log.mended
    return valid, public_names(recipe.data.source) | {"invalid_records": log, "read": read}


def label_column(recipe: Recipe, example: str) -> str:
    """Return the column of labels; ValueError where the recipe names none."""
    if recipe.text.label is None:
        learns = f"architecture={recipe.model.architecture!r} learns {example}"
        raise ValueError(f"{learns}; name their column, as in text.label={example}")
    return recipe.text.label


def labels_of(tables: Mapping[str, Dataset], recipe: Recipe, column: str) -> tuple[dict[str, list[str]], list[str]]:
    """Return the classes of the rows of each split by their names, and all classes in order.

    ValueError where the first row, which was taken for a header, holds a text and a class.
    """
    named = getattr(tables["train"].features[column], "names", None)
    labels = {name: [named[each] if named else str(each) for each in own[column]] for name, own in tables.items()}
    text = recipe.text.column
    if not named and " " in text.strip() and column in labels["train"]:
        raise ValueError(
            f"{recipe.data.source} has no header: {column!r} is a class, too, and the texts are called {text[:40]!r}; "
            "put one before the first row, such as text,label"
        )
    return labels, class_names(labels, recipe, column, named)


def class_names(
    found: Mapping[str, Iterable[str]], recipe: Recipe, column: str, named: Sequence[str] | None = None
) -> list[str]:
    """Return the classes of the training split in order, or of a pretrained head that knows them all.

    `named` are the classes that the data name. ValueError where there is nothing to tell apart, or where a split has a
    class that the training lacks.
    """
    seen = {name: set(own) for name, own in found.items()}
    known = pretrained_classes(recipe.model.init, named or in_order(seen["train"]))
    where = f"{recipe.data.source}, column {column!r}"
    say_alike(seen["train"], where)
    if recipe.data.test_size < 1 and len(seen["train"]) < 2:
        alone = ", ".join(map(repr, seen["train"]))
        raise ValueError(f"{where}: all rows have one class, {alone}; a classifier needs rows of two or more")
    if unknown := set().union(*seen.values()) - set(known):
        raise ValueError(
            f"{where}: {min(unknown)!r} is not among the {len(known)} classes of the training split; give that split "
            "rows of it, or leave out the rows that have it"
        )
    return known


def rarest(sets: Mapping[str, Sequence[Sequence[str]]]) -> dict[str, list[str]]:
    """Return the class of each row that is rarest in the training split; empty for a row without one."""
    counts = Counter(name for own in sets["train"] for name in set(own))
    return {
        split: [min(own, key=lambda name: (counts[name], name), default="") for own in rows]
        for split, rows in sets.items()
    }


def say_alike(names: Iterable[str], where: str) -> None:
    """Say which classes differ by letters' case, spaces or the form of a letter in Unicode alone."""
    forms: dict[str, list[str]] = {}
    for name in sorted(names):
        forms.setdefault(" ".join(normalize("NFKC", name).casefold().split()), []).append(ascii(name))
    for alike in (own for own in forms.values() if len(own) > 1):
        say(f"{where}: the classes {', '.join(alike)} look alike; give them one name if they are one")


def in_order(names: Iterable[str]) -> list[str]:
    """Sort the names of classes by their numbers, or by the alphabet."""
    different = set(names)
    are_numbers = all(name.removeprefix("-").isdecimal() for name in different)
    return sorted(different, key=lambda name: (int(name) if are_numbers else 0, name))
