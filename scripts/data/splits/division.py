"""Divide own data into splits, count their classes, and refuse data whose training split holds the others."""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasets import Dataset, Features, List, Value

from qkv.scripts.data.splits.duplicates import MOST, Sketch, find_leaks
from qkv.scripts.data.validation import check_image, wav_bytes
from qkv.scripts.recipes.schema import Recipe

FEATURES = Features({"exact": Value("binary"), "near": List(Value("uint8"))})
Sketches = Mapping[str, Sequence[Sketch]]
Labels = Mapping[str, Sequence[Any]]
Groups = Sequence[Any]


@dataclass(frozen=True)
class Division:
    """The rows of each split, as the table that holds them and their numbers in it, and the facts for the record."""

    rows: Mapping[str, tuple[str, Sequence[int]]]
    report: dict[str, Any]

    def of_tables(self, tables: Mapping[str, Dataset]) -> dict[str, Dataset]:
        """Return the splits of tables."""
        return {name: tables[source].select(own) for name, (source, own) in self.rows.items()}

    def of_lists(self, lists: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Return the splits of lists; none of none."""
        return {name: [lists[at][row] for row in own] for name, (at, own) in (self.rows if lists else {}).items()}


def divide_rows(
    known: Sketches,
    recipe: Recipe,
    labels: Labels | None = None,
    groups: Groups | None = None,
    *,
    validation_is_enough: bool = False,
) -> Division:
    """Divide own data into the splits that the recipe asks for.

    The rows of each table are compared by the sketches `known`; `labels` are their classes; training rows of one of the
    `groups` stay together. Splits that the data have are kept. With a `test_size` of 1 nothing is trained on: all rows
    are the test split, or those of the test split that the data have. ValueError where a split gets no row, and where
    the training split holds more of an evaluated split than `leaked_records` allows.
    """
    if recipe.data.test_size == 1:
        only = "test" if "test" in known else "train"
        return Division({"test": (only, range(len(known[only])))}, {"split": "all rows are evaluated", "leaked": {}})
    data, labels = recipe.data, labels or {}
    shares = {"validation": data.holdout, "test": data.test_size}
    shares = {name: share for name, share in shares.items() if share and name not in known}
    if validation_is_enough and "validation" in known:
        shares.pop("test", None)
    try:
        rows, how = choose_rows(known, shares, recipe, labels, groups)
    except ValueError as error:
        raise ValueError(f"{data.source}: {error}") from None
    splits = {name: [known[source][row] for row in own] for name, (source, own) in rows.items()}
    counts: dict[str, dict[str, int | None]] = {}
    for name in [name for name in splits if name != "train"]:
        equal, near = find_leaks(splits["train"], splits[name])
        counts[name] = {"equal": len(equal), "similar": None if near is None else len(near)}
        (source, own), (_, train) = rows[name], rows["train"]
        if len(equal) > data.leaked_records * len(own):
            row, other = next(iter(equal.items()))
            raise ValueError(
                f"{len(equal)} of {len(own)} rows of the {name} split of {data.source} are in the training split as "
                f"well, more than leaked_records={data.leaked_records} allows; the first is row {own[row] + 1} of "
                f"{source}, which is row {train[other] + 1} of train; remove them, or set leaked_records=1"
            )
    division = Division(rows, {"split": how, "leaked": counts})
    if labels:
        division.report["classes"] = class_counts(division.of_lists(labels))
    return division


def class_counts(labels: Labels) -> dict[str, dict[str, int]]:
    """Count the classes of each split."""
    return {name: dict(sorted(Counter(map(str, own)).items())) for name, own in labels.items()}


def group_columns(recipe: Recipe) -> list[str]:
    """Return the columns that are read to keep rows together."""
    return [recipe.data.group] if recipe.data.group else []


def groups_of(tables: Mapping[str, Dataset], recipe: Recipe) -> Groups | None:
    """Return the group of each training row."""
    return tables["train"][recipe.data.group] if recipe.data.group else None


def choose_rows(
    known: Sketches, shares: Mapping[str, float], recipe: Recipe, labels: Labels, groups: Groups | None
) -> tuple[dict[str, tuple[str, Sequence[int]]], str]:
    """Return the rows of each split, and how they were chosen."""
    data, how = recipe.data, "as the data have them"
    rows: dict[str, tuple[str, Sequence[int]]] = {name: (name, range(len(own))) for name, own in known.items()}
    if shares:
        train = known["train"]
        order = {"labels": labels.get("train"), "groups": groups or [each.exact for each in train]}
        own = split_rows(len(train), shares, seed=data.split_seed, by_time=data.split == "time", **order)
        rows |= {name: ("train", chosen) for name, chosen in own.items()}
        together = f"rows of one {data.group!r} together" if data.group else "equal rows together"
        classes = "the same share of each class, " if labels else ""
        drawn = f"at random, {classes}{together}, split_seed={data.split_seed}"
        how = f"{' and '.join(shares)} from the training rows, {'the last ones' if data.split == 'time' else drawn}"
    most = recipe.text.evaluated
    for name, (source, chosen) in rows.items():
        if name != "train" and 0 < most < len(chosen):
            strata = [labels[source][row] for row in chosen] if labels else None
            fewer = split_rows(len(chosen), {"kept": most / len(chosen)}, seed=data.split_seed, labels=strata)["kept"]
            rows[name] = source, [chosen[index] for index in fewer]
    return rows, how


def split_rows(
    count: int,
    shares: Mapping[str, float],
    *,
    seed: int = 0,
    labels: Sequence[Hashable] | None = None,
    groups: Sequence[Hashable] | None = None,
    by_time: bool = False,
) -> dict[str, list[int]]:
    """Return the rows of `train` and of each named share of all rows, each in their old order.

    Rows are drawn at random, from each label its share, so that every split has the classes of the whole; rows of one
    group stay together. `by_time` takes the last rows instead, for the later of two names the later rows. A class keeps
    a row or group for the training. ValueError where a share gets no row.
    """
    members: dict[Hashable, list[int]] = {}
    for row in range(count):
        members.setdefault(row if groups is None or by_time else groups[row], []).append(row)
    each = list(members.values())
    units = [each[index] for index in np.random.default_rng(seed).permutation(len(each))]
    chosen = last_rows(count, shares) if by_time else stratified(units, shares, labels or [None] * count)
    for name, share in shares.items():
        if not chosen[name] and labels and len(set(labels)) == count:
            raise ValueError(
                f"each of the {count} rows has a class of its own, so that no split can have the classes of the "
                "training; where they are numbers to predict, set model.problem_type=regression"
            )
        if not chosen[name]:
            together = f", of which equal rows or groups leave {len(units)}," if len(units) < count else ""
            none = f"leaves none for the {name} split; give more rows, or its files"
            raise ValueError(f"{share:.0%} of {count} rows{together} {none}")
    taken = {row for rows in chosen.values() for row in rows}
    return {"train": [row for row in range(count) if row not in taken], **chosen}


def last_rows(count: int, shares: Mapping[str, float]) -> dict[str, list[int]]:
    """Return the last rows for the last name, those before it for the one before, and so on."""
    chosen, end = dict[str, list[int]](), count
    for name, share in reversed([*shares.items()]):
        begin = end - round(share * count)
        chosen[name], end = list(range(max(begin, 1), end)), begin
    return chosen


def stratified(
    units: Sequence[list[int]], shares: Mapping[str, float], labels: Sequence[Hashable]
) -> dict[str, list[int]]:
    """Return the rows of each share, drawn from the units of each label in their order.

    Shares of labels are rounded so that their sum is that of the whole: those with the largest rest are rounded up.
    """
    strata: dict[Hashable, list[list[int]]] = {}
    for unit in units:
        strata.setdefault(labels[unit[0]], []).append(unit)
    sizes = {label: sum(map(len, own)) for label, own in strata.items()}
    left = {label: own[1:] for label, own in strata.items()}  # the first of each is for the training
    chosen: dict[str, list[int]] = {}
    for name, share in shares.items():
        quotas = {label: int(size * share) for label, size in sizes.items()}
        spare = round(sum(sizes.values()) * share) - sum(quotas.values())
        rests = sorted((quotas[label] - size * share, str(label), label) for label, size in sizes.items())
        for _, _, label in rests[: max(spare, 0)]:
            quotas[label] += 1
        rows: list[int] = []
        for label, own in left.items():
            left[label], drawn = [], 0
            for unit in own:  # so many that together come near to the quota
                near = drawn + len(unit) / 2 <= quotas[label]
                rows += unit if near else []
                left[label] += [] if near else [unit]
                drawn += len(unit) if near else 0
        chosen[name] = sorted(rows)
    return chosen


def text_sketches(texts: Mapping[str, Sequence[str]]) -> Sketches:
    """Return the sketches of texts; of many, equal ones alone are found."""
    few = sum(map(len, texts.values())) <= MOST
    sketch = Sketch.of_text if few else lambda text: Sketch.of_bytes(text.encode())
    return {name: list(map(sketch, own)) for name, own in texts.items()}


def file_sketches(
    tables: Mapping[str, Dataset], column: str, sketch: Callable[[Any], dict[str, Any]]
) -> dict[str, list[Sketch]]:
    """Return the sketches of the images or recordings of a column; datasets' cache keeps them."""
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
    """Say how own data were split, the classes of the splits, and the rows that two of them share."""
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
