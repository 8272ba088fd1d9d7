"""Intervals against formulas and the libraries that define metrics; p values against sums over all exchanges."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from evaluations import evaluation
from qkv.scripts.prediction.comparison import compare, intervals, mcnemar, paired_test, permutation, resampled
from qkv.scripts.tasks.metrics import MISSED, measure

PAIRS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30)


def test_interval_covers_the_truth_nineteen_times_in_twenty() -> None:
    random, covered, rounds = np.random.default_rng(0), 0, 150
    for number in range(rounds):
        drawn = evaluation([("a", "a")] * 60, losses=random.exponential(2.0, 60).tolist())
        low, high = intervals(drawn, 200, seed=number)["loss"]
        covered += low <= 2.0 <= high
    assert 0.88 <= covered / rounds <= 0.99


def test_interval_of_a_mean_is_near_the_formula() -> None:
    losses = np.random.default_rng(1).exponential(2.0, 400)
    low, high = intervals(evaluation([("a", "a")] * 400, losses=losses.tolist()), 1000, seed=0)["loss"]
    error = 1.96 * losses.std(ddof=1) / 20
    assert (low, high) == pytest.approx((losses.mean() - error, losses.mean() + error), rel=0.03)


def test_intervals_follow_from_the_seed_and_need_two_rows() -> None:
    drawn = evaluation([("a", "a"), ("b", "a"), ("c", "c")] * 5, "accuracy")
    assert intervals(drawn, 50, seed=3) == intervals(drawn, 50, seed=3)
    assert intervals(evaluation([("a", "a")], "accuracy"), 50, seed=0) == {}


def answers_of(name: str, random: np.random.Generator) -> list[tuple[object, object]]:
    """Twenty answers of the kind that a metric scores."""
    if name == "contacts":  # the first is too short for pairs
        sizes = [3, *random.integers(4, 12, 19)]
        return [(random.random((size, size)), random.integers(0, 2, (size, size))) for size in sizes]
    if name in ("bleu", "chrf", "exact_match"):
        texts = [" ".join(random.choice(list("abcdé"), 7)) for _ in range(40)]
        return list(zip(texts[:20], texts[20:], strict=True))
    names = random.choice(["a", "é", "c", "never right"], (20, 2), p=[0.6, 0.2, 0.15, 0.05]).tolist()
    return [(predicted if number % 5 else MISSED, true) for number, (predicted, true) in enumerate(names)]


@pytest.mark.parametrize("name", ["accuracy", "f1_macro", "f1_weighted", "exact_match", "bleu", "chrf", "contacts"])
def test_metrics_of_resamples_are_those_of_the_chosen_rows(name: str) -> None:
    random = np.random.default_rng(0)
    answers = answers_of(name, random)
    drawn = resampled(evaluation(answers, name))
    for chosen in [*random.integers(0, 20, (5, 20)), np.array([0]), np.array([3, 3, 7])]:
        expected = measure([name], *zip(*(answers[number] for number in chosen), strict=True))
        assert {key: drawn(chosen)[key] for key in expected} == pytest.approx(expected)


def test_rows_with_several_answers_or_none_are_drawn_whole() -> None:
    several = evaluation([("x", "x")] * 3, "accuracy")
    several.answers[:] = [[("x", "x"), ("y", "x")], [], [("y", "y")]]
    assert resampled(several)(np.array([0, 0, 1]))["accuracy"] == 1 / 2
    assert resampled(several)(np.array([2, 1, 0]))["accuracy"] == pytest.approx(2 / 3)


@given(PAIRS)
def test_mcnemar_is_the_binomial_test(pairs: list[tuple[bool, bool]]) -> None:
    first, second = (list(side) for side in zip(*pairs, strict=True))
    alone = [sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)]
    expected = binomtest(min(alone), sum(alone)).pvalue if sum(alone) else 1.0
    compared, turned = mcnemar(first, second), mcnemar(second, first)
    assert compared["p_value"] == pytest.approx(expected) == turned["p_value"]
    assert compared["right_alone"] == alone == turned["right_alone"][::-1]


def test_permutation_test_is_near_the_sum_over_all_exchanges() -> None:
    random = np.random.default_rng(0)
    losses, others = random.exponential(1.0, 10), random.exponential(1.6, 10)
    difference = losses - others
    sums = np.array([np.dot(signs, difference) for signs in product((1, -1), repeat=10)])
    exact = np.mean(np.abs(sums) >= abs(difference.sum()) - 1e-12)
    for one, other in ((losses, others), (others, losses)):
        assert permutation(one.tolist(), other.tolist(), 20_000, seed=0)["p_value"] == pytest.approx(exact, abs=0.01)
    assert permutation(losses.tolist(), losses.tolist(), 99, seed=0)["p_value"] == 1.0
    assert permutation([0.0] * 50, [1.0] * 50, 999, seed=0)["p_value"] == 0.001


def test_better_model_shows_in_its_difference_and_rows() -> None:
    references = ["a", "b"] * 30
    good = evaluation(list(zip(references, references, strict=True)), "accuracy")
    wrong = ["b" if number % 3 == 0 else own for number, own in enumerate(references)]
    bad = evaluation(list(zip(wrong, references, strict=True)), "accuracy")
    for each in (good, bad):
        for row, ((predicted, own),) in zip(each.rows, each.answers, strict=True):
            row["correct"] = predicted == own
    compared, turned = compare(good, bad, 200, seed=0), compare(bad, good, 200, seed=0)
    low, high = compared["differences"]["accuracy"]["interval"]
    assert compared["differences"]["accuracy"]["value"] == pytest.approx(1 / 6) and 0 < low < 1 / 6 < high
    assert turned["differences"]["accuracy"]["interval"] == pytest.approx((-high, -low))
    assert compared["p_value"] == pytest.approx(2**-9) and compared["right_alone"] == [10, 0]


def test_losses_are_compared_where_nothing_is_right_or_wrong() -> None:
    assert paired_test([{"loss": 1.0}] * 9, [{"loss": 2.0}] * 9, 99, seed=0).keys() == {"test", "p_value"}
    assert paired_test([{}], [{}], 99, seed=0) == {}


@pytest.mark.parametrize("answers", [[("a", "a")], [("a", "b"), ("b", "a")]])
def test_other_rows_are_refused(answers: list[tuple[str, str]]) -> None:
    with pytest.raises(ValueError, match="rows"):
        compare(evaluation([("a", "a"), ("b", "a")], "accuracy"), evaluation(answers, "accuracy"), 10, seed=0)
