"""Divide own data into splits, count their classes, and refuse data whose training split holds the others."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasets import Dataset, Features, List, Value

from qkv.scripts.data.splits.duplicates import MOST, Leak, Sketch, can_be_similar, find_leaks
from qkv.scripts.data.splits.splitting import split_rows
from qkv.scripts.data.validation import check_image, wav_bytes
from qkv.scripts.recipes.schema import Recipe

FEATURES = Features({"exact": Value("binary"), "near": List(Value("uint8"))})
Sketches = Mapping[str, Sequence[Sketch]]
Labels = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Division:
    """The rows of each split, as the table that holds them and their numbers in it, and the facts for the record."""

    rows: Mapping[str, tuple[str, Sequence[int]]]
    report: dict[str, Any]

    def of_tables(self, tables: Mapping[str, Dataset]) -> dict[str, Dataset]:
        """Return the splits of tables."""
        return {name: tables[source].select(own) for name, (source, own) in self.rows.items()}

    def of_lists(self, lists: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Return the splits of lists, which may be none."""
        rows = self.rows.items() if lists else ()
        return {name: [lists[source][row] for row in own] for name, (source, own) in rows}


def divide_rows(
    known: Sketches,
    recipe: Recipe,
    labels: Labels | None = None,
    groups: Sequence[Any] | None = None,
    *,
    validation_is_enough: bool = False,
) -> Division:
    """Divide own data into the splits that the recipe asks for.

    `known` is what the rows of each table are compared by, `labels` are their classes; training rows of one of the
    `groups` stay together. Splits that the data have are kept. ValueError where a split gets no row, and where the
    training split holds too much of another. With a `test_size` of 1 nothing is trained on: all rows are the test
    split, or those of the test split that the data have.
    """
    if recipe.data.test_size == 1:
        name = "test" if "test" in known else "train"
        return Division({"test": (name, range(len(known[name])))}, {"split": "all rows are evaluated", "leaked": {}})
    shares = {"validation": recipe.data.holdout, "test": recipe.data.test_size}
    shares = {name: share for name, share in shares.items() if share and name not in known}
    if validation_is_enough and "validation" in known:
        shares.pop("test", None)
    try:
        rows, how = choose_rows(known, shares, recipe, labels or {}, groups)
    except ValueError as error:
        raise ValueError(f"{recipe.data.source}: {error}") from None
    splits = {name: [known[source][row] for row in own] for name, (source, own) in rows.items()}
    counts: dict[str, dict[str, int | None]] = {}
    for name in [name for name in splits if name != "train"]:
        leaks = find_leaks(splits["train"], splits[name])
        check_leaks(name, leaks, rows, recipe)
        equal = sum(leak.exact for leak in leaks)
        compared = can_be_similar(splits["train"], splits[name])
        counts[name] = {"equal": equal, "similar": len(leaks) - equal if compared else None}
    division = Division(rows, {"split": how, "leaked": counts})
    if labels:
        each = {name: Counter(map(str, own)) for name, own in division.of_lists(labels).items()}
        division.report["classes"] = {name: dict(sorted(own.items())) for name, own in each.items()}
    return division


def group_columns(recipe: Recipe) -> list[str]:
    """Return the columns that are read to keep rows together."""
    return [recipe.data.group] if recipe.data.group else []


def groups_of(tables: Mapping[str, Dataset], recipe: Recipe) -> Sequence[Any] | None:
    """Return the group of each training row."""
    return tables["train"][recipe.data.group] if recipe.data.group else None


def choose_rows(
    known: Sketches, shares: Mapping[str, float], recipe: Recipe, labels: Labels, groups: Sequence[Any] | None
) -> tuple[dict[str, tuple[str, Sequence[int]]], str]:
    """Return the rows of each split, and how they were chosen."""
    data = recipe.data
    rows: dict[str, tuple[str, Sequence[int]]] = {name: (name, range(len(own))) for name, own in known.items()}
    how = "as the data have them"
    if shares:
        train = known["train"]
        order = {"labels": labels.get("train"), "groups": groups or [each.exact for each in train]}
        own = split_rows(len(train), shares, seed=data.split_seed, by_time=data.split == "time", **order)
        rows |= {name: ("train", chosen) for name, chosen in own.items()}
        together = f"rows of one {data.group!r} together" if data.group else "equal rows together"
        classes = "the same share of each class, " if labels else ""
        drawn = f"at random, {classes}{together}, split_seed={data.split_seed}"
        drawn = "the last ones" if data.split == "time" else drawn
        how = f"{' and '.join(shares)} from the training rows, {drawn}"
    most = recipe.text.evaluated
    for name, (source, chosen) in rows.items():
        if name != "train" and 0 < most < len(chosen):
            classes = [labels[source][row] for row in chosen] if labels else None
            fewer = split_rows(len(chosen), {"kept": most / len(chosen)}, seed=data.split_seed, labels=classes)["kept"]
            rows[name] = source, [chosen[index] for index in fewer]
    return rows, how


def text_sketches(texts: Mapping[str, Sequence[str]]) -> Sketches:
    """Return what texts are compared by; of many, equal ones alone are found."""
    few = sum(map(len, texts.values())) <= MOST
    sketch = Sketch.of_text if few else lambda text: Sketch.of_bytes(text.encode())
    return {name: list(map(sketch, own)) for name, own in texts.items()}


def file_sketches(
    tables: Mapping[str, Dataset], column: str, sketch: Callable[[Any], dict[str, Any]]
) -> dict[str, list[Sketch]]:
    """Return what the images or recordings of a column are compared by; datasets' cache keeps it."""
    fields = {"input_columns": column, "features": FEATURES, "desc": "looking for duplicates"}
    mapped = {name: table.map(sketch, remove_columns=table.column_names, **fields) for name, table in tables.items()}
    return {
        name: [Sketch(row["exact"], np.array(row["near"], np.uint8)) for row in table] for name, table in mapped.items()
    }


def sketch_image(value: Any) -> dict[str, Any]:
    """Sketch an image as a row of a table."""
    made = Sketch.of_image(check_image(value))
    return {"exact": made.exact, "near": list(made.near)}


def sketch_recording(value: Any) -> dict[str, Any]:
    """Sketch a recording as a row of a table."""
    return {"exact": Sketch.of_bytes(wav_bytes(value)).exact, "near": []}


def sentence(report: Mapping[str, Any]) -> str:
    """Say how own data were split, what is in the splits, and what two of them share."""
    classes = {
        name: ", ".join(f"{label} {count}" for label, count in own.items()) if len(own) < 6 else f"{len(own)} classes"
        for name, own in report.get("classes", {}).items()
    }
    shared = [
        f"{name} shares {own['equal']} equal and {own['similar'] or 0} similar rows with train"
        for name, own in report["leaked"].items()
        if own["equal"] or own["similar"]
    ]
    return "; ".join([f"splits: {report['split']}", *(f"{name}: {own}" for name, own in classes.items()), *shared])


def check_leaks(
    name: str, leaks: Sequence[Leak], rows: Mapping[str, tuple[str, Sequence[int]]], recipe: Recipe
) -> None:
    """Raise ValueError where the training split holds more of an evaluated split than `leaked_records` allows."""
    (source, own), (_, train) = rows[name], rows["train"]
    exact = [leak for leak in leaks if leak.exact]
    if len(exact) > recipe.data.leaked_records * len(own):
        first, share = exact[0], recipe.data.leaked_records
        raise ValueError(
            f"{len(exact)} of {len(own)} rows of the {name} split of {recipe.data.source} are in the training split as "
            f"well, more than leaked_records={share} allows; the first is row {own[first.row] + 1} of {source}, which "
            f"is row {train[first.train_row] + 1} of train; remove them, or set leaked_records=1"
        )
