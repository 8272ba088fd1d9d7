"""Compare two models on the same rows: differences with intervals, and how likely chance alone gives them."""

from collections.abc import Mapping, Sequence
from math import comb
from typing import Any

import numpy as np

from qkv.scripts.prediction.bootstrap import bootstrap, intervals_of
from qkv.scripts.prediction.evaluation import Evaluation


def compare(one: Evaluation, other: Evaluation, resamples: int, seed: int) -> dict[str, Any]:
    """Return the difference of each metric, one minus the other, with its 95 % interval, and a paired test.

    Both are measured on the same resamples of rows. ValueError where the rows are others.
    """
    check_rows(one, other)
    values, others = one.metrics(), other.metrics()
    drawn = bootstrap([one, other], resamples, seed) if len(one.rows) > 1 else ()
    ranges = intervals_of({name: own[name] - their[name] for name in own.keys() & their} for own, their in drawn)
    differences = {
        name: {"value": values[name] - others[name], "interval": ranges.get(name)} for name in values if name in others
    }
    return {"differences": differences, **paired_test(one.rows, other.rows, resamples, seed)}


def check_rows(one: Evaluation, other: Evaluation) -> None:
    """Raise ValueError unless both models were asked the same."""
    if len(one.rows) != len(other.rows) or references_of(one) != references_of(other):
        raise ValueError(
            f"the rows are not the same, {len(one.rows)} and {len(other.rows)}, or not what is right for them; give "
            "both models one table"
        )


def references_of(evaluation: Evaluation) -> list[list[Any]]:
    """Return what is right for each row, as a table shows it."""
    return [[evaluation.task.shown(answer)["reference"] for answer in own] for own in evaluation.answers]


def paired_test(
    rows: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], resamples: int, seed: int
) -> dict[str, Any]:
    """Test whether two models differ: by the rows that one alone has right, or else by the losses of rows."""
    if all("correct" in row for row in (*rows, *others)):
        return mcnemar([row["correct"] for row in rows], [row["correct"] for row in others])
    if all("loss" in row for row in (*rows, *others)):
        return permutation([row["loss"] for row in rows], [row["loss"] for row in others], resamples, seed)
    return {}


def mcnemar(right: Sequence[bool], others: Sequence[bool]) -> dict[str, Any]:
    """Return the exact two-sided p value of McNemar's test, and on how many rows one model alone is right.

    Where both are equally good, each such row is right by either with probability one half.

    Source: McNemar 1947, Note on the sampling error of the difference between correlated proportions or percentages,
        https://doi.org/10.1007/BF02295996
    """
    alone = [sum(a and not b for a, b in zip(*pair, strict=True)) for pair in ((right, others), (others, right))]
    as_unlikely = 2 * sum(comb(sum(alone), number) for number in range(min(alone) + 1))
    p_value = min(as_unlikely / 2 ** sum(alone), 1.0)
    return {"test": "McNemar's exact test", "p_value": p_value, "right_alone": alone}


def permutation(losses: Sequence[float], others: Sequence[float], resamples: int, seed: int) -> dict[str, Any]:
    """Return the two-sided p value of a paired permutation test of the mean difference.

    Where both are equally good, the two losses of a row may be exchanged.

    Source: Fisher 1935, The Design of Experiments, §21; Phipson & Smyth 2010, Permutation p-values should never be
        zero, https://doi.org/10.2202/1544-6115.1585
    """
    difference = np.asarray(losses, dtype=np.float64) - np.asarray(others, dtype=np.float64)
    signs = np.random.default_rng(seed).choice((-1.0, 1.0), (resamples, len(difference)))
    extreme = np.abs(signs @ difference) >= np.abs(difference.sum()) * (1 - 1e-12)
    return {"test": "a paired permutation test of losses", "p_value": float((1 + extreme.sum()) / (1 + resamples))}


def conclusion(comparison: Mapping[str, Any]) -> str:
    """Return the paired test in a sentence; empty without one."""
    if "p_value" not in comparison:
        return ""
    alone = comparison.get("right_alone")
    rows = f"; {alone[0]} rows are right by the first alone, {alone[1]} by the second alone" if alone else ""
    return f"p = {comparison['p_value']:.2g} by {comparison['test']}{rows}"
