"""Paired comparison: p values against sums over all exchanges, and rows that are the same."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from evaluations import evaluation
from qkv.scripts.prediction.comparison import compare, conclusion, mcnemar, paired_test, permutation

PAIRS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30)


@given(PAIRS)
def test_mcnemar_is_the_binomial_test_of_scipy(pairs: list[tuple[bool, bool]]) -> None:
    first, second = (list(side) for side in zip(*pairs, strict=True))
    alone = [sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)]
    expected = binomtest(alone[0], sum(alone), 0.5).pvalue if sum(alone) else 1.0
    compared = mcnemar(first, second)
    assert compared["p_value"] == pytest.approx(expected) and compared["right_alone"] == alone
    turned = mcnemar(second, first)
    assert turned["p_value"] == pytest.approx(compared["p_value"]) and turned["right_alone"] == alone[::-1]


def test_the_permutation_test_is_near_the_sum_over_all_exchanges() -> None:
    random = np.random.default_rng(0)
    losses, others = random.exponential(1.0, 10), random.exponential(1.6, 10)
    difference = losses - others
    sums = np.array([np.dot(signs, difference) for signs in product((1, -1), repeat=10)])
    exact = np.mean(np.abs(sums) >= abs(difference.sum()) - 1e-12)
    for one, other in ((losses, others), (others, losses)):
        assert permutation(one.tolist(), other.tolist(), 20_000, seed=0)["p_value"] == pytest.approx(exact, abs=0.01)
    assert permutation(losses.tolist(), losses.tolist(), 99, seed=0)["p_value"] == 1.0
    assert permutation([0.0] * 50, [1.0] * 50, 999, seed=0)["p_value"] == 0.001


def test_p_values_are_even_where_nothing_differs() -> None:
    random = np.random.default_rng(1)
    drawn = [permutation(*random.exponential(1.0, (2, 40)).tolist(), 199, seed=number) for number in range(200)]
    assert 0.4 < np.mean([each["p_value"] for each in drawn]) < 0.6
    assert np.mean([each["p_value"] <= 0.05 for each in drawn]) < 0.1


def test_a_better_model_is_told_by_its_difference_and_rows() -> None:
    references = ["a", "b"] * 30
    good = evaluation(list(zip(references, references, strict=True)), "accuracy")
    wrong = ["b" if number % 3 == 0 else own for number, own in enumerate(references)]
    bad = evaluation(list(zip(wrong, references, strict=True)), "accuracy")
    for each in (good, bad):
        for row, ((predicted, own),) in zip(each.rows, each.answers, strict=True):
            row["correct"] = predicted == own
    compared = compare(good, bad, 200, seed=0)
    low, high = compared["differences"]["accuracy"]["interval"]
    assert compared["differences"]["accuracy"]["value"] == pytest.approx(1 / 6) and 0 < low < 1 / 6 < high
    turned = compare(bad, good, 200, seed=0)["differences"]["accuracy"]
    assert turned["value"] == pytest.approx(-1 / 6) and turned["interval"] == pytest.approx((-high, -low))
    assert (
        conclusion(compared)
        == "p = 0.002 by McNemar's exact test; 10 rows are right by the first alone, 0 by the second alone"
    )
    assert compare(good, good, 50, seed=0)["differences"]["accuracy"] == {"value": 0.0, "interval": (0.0, 0.0)}


def test_losses_are_compared_where_nothing_is_right_or_wrong() -> None:
    rows, others = [{"loss": 1.0}] * 9, [{"loss": 2.0}] * 9
    assert paired_test(rows, others, 99, seed=0)["test"] == "a paired permutation test of losses"
    assert paired_test([{}], [{}], 99, seed=0) == {} and conclusion({}) == ""


def test_other_rows_are_refused() -> None:
    one = evaluation([("a", "a"), ("b", "a")], "accuracy")
    for other in (evaluation([("a", "a")], "accuracy"), evaluation([("a", "b"), ("b", "a")], "accuracy")):
        with pytest.raises(ValueError, match="the rows are not the same"):
            compare(one, other, 10, seed=0)
