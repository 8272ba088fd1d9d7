"""Divide data into splits, count their classes, and refuse data whose training split holds the others."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np
from datasets import Dataset

from qkv.scripts.data.splits.duplicates import Sketch, find_leaks
from qkv.scripts.data.splits.seen import HASHES, row_hashes
from qkv.scripts.recipes.schema import Recipe

TEST_EVERY = 10  # every so-many-th record of example data without a test split is for the test
Sketches = Mapping[str, Sequence[Sketch]]
Labels = Mapping[str, Sequence[Any]]
Groups = Sequence[Any]
# The rows of each split: the table that holds them, and their numbers in it.
Rows = dict[str, tuple[str, Sequence[int]]]


@dataclass(frozen=True)
class Division:
    """The rows of each split, and the facts for the record."""

    rows: Rows
    report: dict[str, Any] = field(default_factory=dict)

    def of_tables(self, tables: Mapping[str, Dataset]) -> dict[str, Dataset]:
        """Divide tables."""
        return {name: tables[source].select(own) for name, (source, own) in self.rows.items()}

    def of_lists(self, lists: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Divide lists by split; empty for no lists."""
        return {name: [lists[at][row] for row in own] for name, (at, own) in (self.rows if lists else {}).items()}


def divide_evenly(sizes: Mapping[str, int], recipe: Recipe) -> Division:
    """Divide example data: a test and a validation split that are missing are taken evenly from the training.

    Evaluated splits keep their first `text.evaluated` rows. ValueError where a share of the examples is none.
    """
    rows: Rows = {name: (name, range(size)) for name, size in sizes.items()}
    for name, share in {"test": 1 / TEST_EVERY, "validation": recipe.data.holdout}.items():
        if name not in rows and share:
            _, train = rows["train"]
            held = [int((index + 1) * share) > int(index * share) for index in range(len(train))]
            if not any(held):
                raise ValueError(f"holdout={share} of {len(train)} examples is none; make it larger, or give more")
            rows[name] = "train", list(compress(train, held))
            rows["train"] = "train", [row for row, out in zip(train, held, strict=True) if not out]
    most = recipe.text.evaluated or None
    return Division({name: (source, own if name == "train" else own[:most]) for name, (source, own) in rows.items()})


def divide_rows(
    known: Sketches, recipe: Recipe, tables: Mapping[str, Dataset], labels: Labels | None = None,
    *, validation_is_enough: bool = False,
) -> Division:  # fmt: skip
    """Divide the rows of your own data by their classes and groups; splits that the data have are kept.

    With a `test_size` of 1 all rows are the test split, or those of the test split that the data have. ValueError for
    a split without rows, and where the training split holds more of another than `leaked_records` allows.
    """
    data, labels = recipe.data, labels or {}
    if data.test_size == 1:
        only = "test" if "test" in known else "train"
        report = {"split": "all rows are evaluated", "leaked": {}, HASHES: row_hashes({"test": known[only]})}
        return Division({"test": (only, range(len(known[only])))}, report)
    shares = {"validation": data.holdout, "test": data.test_size}
    shares = {name: share for name, share in shares.items() if share and name not in known}
    if validation_is_enough and "validation" in known:
        shares.pop("test", None)
    groups = tables["train"][data.group] if data.group else [each.exact for each in known["train"]]
    try:
        rows, how = choose_rows(known, shares, recipe, labels, groups)
    except ValueError as error:
        raise ValueError(f"{data.source}: {error}") from None
    division = Division(rows, {"split": how, "leaked": count_leaks(known, rows, recipe)})
    if unscored := sum(map(len, known.values())) - sum(len(own) for _, own in rows.values()):
        division.report["unscored"] = unscored
    if labels:
        division.report["classes"] = class_counts(division.of_lists(labels))
    division.report[HASHES] = row_hashes(division.of_lists(known))
    return division


def count_leaks(known: Sketches, rows: Rows, recipe: Recipe) -> dict[str, dict[str, int | None]]:
    """Count the rows of evaluated splits that are in the training split as well; ValueError for too many."""
    splits, counts = Division(rows).of_lists(known), dict[str, dict[str, int | None]]()
    for name, (source, own) in rows.items():
        if name == "train":
            continue
        equal, near = find_leaks(splits["train"], splits[name])
        counts[name] = {"equal": len(equal), "similar": None if near is None else len(near)}
        if len(equal) > recipe.data.leaked_records * len(own):
            row, other = next(iter(equal.items()))
            raise ValueError(
                f"{len(equal)} of {len(own)} rows of the {name} split of {recipe.data.source} are in the training "
                f"split as well, more than leaked_records={recipe.data.leaked_records} allows; the first is row "
                f"{own[row] + 1} of {source}, which is row {rows['train'][1][other] + 1} of train; remove them, or "
                "set leaked_records=1"
            )
    return counts


def class_counts(labels: Labels) -> dict[str, dict[str, int]]:
    """Count the classes of each split."""
    return {name: dict(sorted(Counter(map(str, own)).items())) for name, own in labels.items()}


def choose_rows(
    known: Sketches, shares: Mapping[str, float], recipe: Recipe, labels: Labels, groups: Groups
) -> tuple[Rows, str]:
    """Choose the rows of each split, and say how."""
    data, how = recipe.data, "as the data have them"
    rows: Rows = {name: (name, range(len(own))) for name, own in known.items()}
    if shares:
        if data.split == "time":
            own, how = last_rows(len(known["train"]), shares), "the last ones"
        else:
            own = split_rows(shares, groups, labels.get("train"), data.split_seed)
            together = f"rows of one {data.group!r} together" if data.group else "equal rows together"
            classes = "the same share of each class, " if labels else ""
            how = f"at random, {classes}{together}, split_seed={data.split_seed}"
        rows |= {name: ("train", chosen) for name, chosen in own.items()}
        how = f"{' and '.join(shares)} from the training rows, {how}"
    most = recipe.text.evaluated
    for name, (source, chosen) in rows.items():
        if name != "train" and 0 < most < len(chosen):
            strata = [labels[source][row] for row in chosen] if labels else None
            kept = split_rows({"kept": most / len(chosen)}, range(len(chosen)), strata, data.split_seed)["kept"]
            rows[name] = source, [chosen[index] for index in kept]
    return rows, how


def last_rows(count: int, shares: Mapping[str, float]) -> dict[str, list[int]]:
    """Return the last rows for the last name, those before them for the name before; ValueError where one gets none."""
    rows, chosen = list(range(count)), dict[str, list[int]]()
    for name, share in reversed([*shares.items()]):
        size = round(share * count)
        if not 0 < size < len(rows):
            raise ValueError(f"{share:.0%} of {count} rows leaves none for the {name} split; give more rows")
        rows, chosen[name] = rows[:-size], rows[-size:]
    return {"train": rows, **chosen}


def split_rows(
    shares: Mapping[str, float], groups: Groups, labels: Sequence[Hashable] | None = None, seed: int = 0
) -> dict[str, list[int]]:
    """Draw the rows of `train` and of each named share at random; return each split in the old order.

    Of each label its share is drawn, so that every split has the classes of the whole; rows of one group stay together.
    A class keeps a row or group for the training. ValueError where a share gets no row.
    """
    count, members = len(groups), dict[Hashable, list[int]]()
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    each = list(members.values())
    units = [each[index] for index in np.random.default_rng(seed).permutation(len(each))]
    chosen = stratified(units, shares, labels or [None] * count)
    for name, share in shares.items():
        if not chosen[name]:
            of, mend = f"{count} rows in {len(units)} groups", "give more rows or its files"
            if labels:
                of += f" of {len(set(labels))} classes"
                mend += ", or set model.problem_type=regression for numbers to predict"
            raise ValueError(f"{share:.0%} of {of} leaves none for the {name} split; {mend}")
    taken = {row for rows in chosen.values() for row in rows}
    return {"train": [row for row in range(count) if row not in taken], **chosen}


def stratified(
    units: Sequence[list[int]], shares: Mapping[str, float], labels: Sequence[Hashable]
) -> dict[str, list[int]]:
    """Return the rows of each share, drawn from the units of each label in their order."""
    strata: dict[Hashable, list[list[int]]] = {}
    for unit in units:
        strata.setdefault(labels[unit[0]], []).append(unit)
    sizes = {label: sum(map(len, own)) for label, own in strata.items()}
    left = {label: own[1:] for label, own in strata.items()}  # the first of each is for the training
    chosen: dict[str, list[int]] = {}
    for name, share in shares.items():
        # Rounded by the largest remainder, so that the sum is right.
        quotas = {label: int(size * share) for label, size in sizes.items()}
        spare = round(sum(sizes.values()) * share) - sum(quotas.values())
        for label in sorted(sizes, key=lambda each: (quotas[each] - sizes[each] * share, str(each)))[: max(spare, 0)]:
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
