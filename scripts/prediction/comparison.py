"""Intervals of metrics, and of differences between two models on the same rows, by a bootstrap over rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from qkv.scripts.prediction.evaluation import Evaluation
from qkv.scripts.tasks.metrics import METRICS, parts_by_row

Intervals = dict[str, tuple[float, float]]


def intervals(evaluation: Evaluation, resamples: int, seed: int) -> Intervals:
    """Return the 95 % interval of each metric, by a bootstrap over rows; none for a single row.

    Source: Efron & Tibshirani 1993, An Introduction to the Bootstrap, §13.3, percentile intervals
    """
    return intervals_of(own for (own,) in bootstrap([evaluation], resamples, seed))


def bootstrap(evaluations: Sequence[Evaluation], resamples: int, seed: int) -> Iterator[list[dict[str, float]]]:
    """Draw rows with replacement, the same ones of each evaluation, and yield the metrics of each over them."""
    count = len(evaluations[0].rows)
    if count > 1:
        measures = [resampled(each) for each in evaluations]
        draws = np.random.default_rng(seed).integers(0, count, (resamples, count))
        for chosen in tqdm(draws, unit="resample", disable=None, leave=False):
            yield [measure(chosen) for measure in measures]


def intervals_of(resamples: Iterable[Mapping[str, float]]) -> Intervals:
    """Return the bounds of the middle 95 % of each value that all resamples have."""
    values: dict[str, list[float]] = {}
    for own in resamples:
        for name, value in own.items():
            values.setdefault(name, []).append(value)
    most = max(map(len, values.values()), default=0)
    bounds = {name: np.quantile(own, (0.025, 0.975)) for name, own in values.items() if len(own) == most}
    return {name: (float(low), float(high)) for name, (low, high) in bounds.items()}


def resampled(evaluation: Evaluation) -> Callable[[NDArray[np.int64]], dict[str, float]]:
    """Return the function that measures chosen rows, from sums where it can; metrics of the Hub are not resampled."""
    answers = evaluation.answers
    row_of_answer = np.repeat(np.arange(len(answers)), list(map(len, answers)))
    pairs = list(zip(*(pair for own in answers for pair in own), strict=True))
    sums: dict[str, Any] = {}
    for name in evaluation.task.metrics:
        if made := parts_by_row(name, *pairs) if pairs else None:
            parts = np.zeros((len(answers), *made[0].shape[1:]), made[0].dtype)
            np.add.at(parts, row_of_answer, made[0])
            sums[name] = parts, made[1]
    others = [name for name in evaluation.task.metrics if name in METRICS and name not in sums]

    def measure(chosen: NDArray[np.int64]) -> dict[str, float]:
        values = evaluation.metrics(chosen.tolist(), others)
        for parts, score in sums.values():
            values |= score(parts[chosen].sum(0))
        return values

    return measure


def compare(one: Evaluation, other: Evaluation, resamples: int, seed: int) -> dict[str, dict[str, Any]]:
    """Return the difference of each metric, one minus the other, with its 95 % interval.

    Both are measured on the same resamples of rows. ValueError where the rows are others.
    """
    references = [
        [each.task.shown(answer)["reference"] for own in each.answers for answer in own] for each in (one, other)
    ]
    if len(one.rows) != len(other.rows) or references[0] != references[1]:
        raise ValueError(
            f"the rows are not the same, {len(one.rows)} and {len(other.rows)}, or their references; give both models "
            "one table"
        )
    values, others = one.metrics(), other.metrics()
    drawn = bootstrap([one, other], resamples, seed)
    ranges = intervals_of({name: own[name] - their[name] for name in own.keys() & their} for own, their in drawn)
    return {
        name: {"value": values[name] - others[name], "interval": ranges.get(name)} for name in values if name in others
    }
