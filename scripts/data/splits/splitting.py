"""Split rows into training, validation and test: at random and stratified, by whole groups, or by time."""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np


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
        if not chosen[name]:
            together = f", of which equal rows or groups leave {len(units)}," if len(units) < count else ""
            if labels and len(set(labels)) == count:
                raise ValueError(
                    f"each of the {count} rows has a class of its own, so that no split can have the classes of the "
                    "training; where they are numbers to predict, set model.problem_type=regression"
                )
            raise ValueError(
                f"{share:.0%} of {count} rows{together} leaves none for the {name} split; give more rows, or its files"
            )
    taken = {row for rows in chosen.values() for row in rows}
    return {"train": [row for row in range(count) if row not in taken], **chosen}


def last_rows(count: int, shares: Mapping[str, float]) -> dict[str, list[int]]:
    """Return the last rows for the last name, those before it for the one before, and so on."""
    chosen: dict[str, list[int]] = {}
    end = count
    for name, share in reversed(list(shares.items())):
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
            drawn, left[label] = draw(own, quotas[label])
            rows += drawn
        chosen[name] = sorted(rows)
    return chosen


def draw(units: Sequence[list[int]], quota: int) -> tuple[list[int], list[list[int]]]:
    """Return the rows of the first units that together come near to that number, and the units that are left."""
    rows: list[int] = []
    left: list[list[int]] = []
    for unit in units:
        if len(rows) + len(unit) / 2 <= quota:
            rows += unit
        else:
            left.append(unit)
    return rows, left
