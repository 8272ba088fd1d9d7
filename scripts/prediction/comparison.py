"""Intervals of metrics, and of differences between two models on the same rows."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.stats import binomtest
from tqdm import tqdm

from qkv.scripts.common.tables import PLAIN
from qkv.scripts.prediction.evaluation import Evaluation
from qkv.scripts.tasks.class_scores import MISSED
from qkv.scripts.tasks.metrics import METRICS, SCORERS, parts_by_row

Intervals = dict[str, tuple[float, float]]
METHOD = "Wilson's for shares of rows, else percentiles of resampled rows"
SHARES = ("accuracy", "exact_match")
EQUAL = 1e-9  # the last bits of equal resamples differ, whose sums are taken in another order
Z_SQUARED = 1.959964**2  # of the normal distribution, whose middle 95 % are within z
OF_OBJECTS = {"precision": 0, "recall": 1, "f1": 1, "ap": 1, "ap50": 1, "ap75": 1}  # of predicted or true ones


def intervals(evaluation: Evaluation, resamples: int, seed: int) -> Intervals:
    """Return the 95 % interval of each metric: Wilson's for a share of rows, else by a bootstrap over rows.

    Sources: Efron & Tibshirani 1993, An Introduction to the Bootstrap, §13.3, percentile intervals; Wilson 1927,
        Probable Inference, https://doi.org/10.1080/01621459.1927.10502953
    """
    right: list[Any] = [row.get("correct") for row in evaluation.rows]
    values, ranges = resampled(evaluation)(np.arange(len(right))), Intervals()
    drawn = intervals_of(own for (own,) in bootstrap([evaluation], resamples, seed))
    for name, value in values.items():
        if name in SHARES and None not in right and math.isclose(value, sum(right) / len(right)):
            share = binomtest(sum(right), len(right)).proportion_ci(method="wilson")
            ranges[name] = float(share.low), float(share.high)
        elif bounds := bounds_of(name, value, drawn.get(name), evaluation):
            ranges[name] = bounds
    return ranges


def bounds_of(
    name: str, value: float, drawn: tuple[float, float] | None, evaluation: Evaluation, *, is_difference: bool = False
) -> tuple[float, float] | None:
    """Return the interval of resamples, or where they are all equal, as where all rows are right, Wilson's width.

    None for metrics without bounds then, and for metrics that some resamples lack.
    """
    count, scale = len(evaluation.rows), 100.0 if name in SCORERS else 0.0 if name in PLAIN else 1.0
    if drawn and not math.isclose(*drawn, abs_tol=EQUAL):
        return drawn
    if not scale or (drawn is None and count > 1):
        return None
    width = scale * width_of(name, evaluation)
    return max(value - width, -scale if is_difference else 0.0), min(value + width, scale)


def width_of(name: str, evaluation: Evaluation) -> float:
    """Return the width of Wilson's interval where all rows are alike, of the rows that count.

    Errors of the classes of a macro average are independent, so their squares add up.

    Source: Zou & Donner 2008, Construction of confidence limits about effect measures, §2
    """
    answers, side = evaluation.answers, OF_OBJECTS.get(name)
    if name == "f1_macro":
        references = [
            [each for _, true in own for each in (true if isinstance(true, list) else [true])] for own in answers
        ]
        counts = [*Counter(each for own in references for each in set(own)).values()] or [0]
    else:
        counts = [sum(side is None or any(holds(pair[side]) for pair in own) for own in answers)]
    return math.hypot(*(Z_SQUARED / (count + Z_SQUARED) for count in counts)) / len(counts)


def holds(answer: Any) -> bool:
    """Return whether an answer has an entity or an object; others always count."""
    tags = answer if isinstance(answer, list) else answer["boxes"] if isinstance(answer, dict) else [answer]
    return any(not isinstance(tag, str) or tag not in ("O", MISSED) for tag in tags)


def bootstrap(evaluations: Sequence[Evaluation], resamples: int, seed: int) -> Iterator[list[dict[str, float]]]:
    """Draw rows with replacement, the same ones of each evaluation, and yield the metrics of each over them."""
    count = len(evaluations[0].rows)
    if count > 1:
        measures = [resampled(each) for each in evaluations]
        random = np.random.default_rng(seed)
        for _ in tqdm(range(resamples), unit="resample", disable=None, leave=False):
            chosen = random.integers(0, count, count)
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
    ends = np.cumsum([0, *map(len, answers)])  # of the answers of each row
    of_rows = csr_array((np.ones(ends[-1], np.int64), np.arange(ends[-1]), ends), shape=(len(answers), ends[-1]))
    pairs = list(zip(*(pair for own in answers for pair in own), strict=True))
    sums: dict[str, Any] = {}
    for name in evaluation.task.metrics:
        if made := parts_by_row(name, *pairs) if pairs else None:
            sums[name] = (of_rows @ made[0]).T, made[1]
    others = [name for name in evaluation.task.metrics if name in METRICS and name not in sums]

    def measure(chosen: NDArray[np.int64]) -> dict[str, float]:
        values, weights = evaluation.metrics(chosen, others), np.bincount(chosen, minlength=len(answers))
        for parts, score in sums.values():
            values |= score(parts @ weights)
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
    differences = {name: value - others[name] for name, value in values.items() if name in others}
    return {
        name: {"value": value, "interval": bounds_of(name, value, ranges.get(name), one, is_difference=True)}
        for name, value in differences.items()
    }
