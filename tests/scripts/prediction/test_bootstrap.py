"""Intervals against formulas, and scores of resamples against the libraries that define them."""

import numpy as np
import pytest
from sacrebleu import corpus_bleu, corpus_chrf

from evaluations import evaluation
from qkv.scripts.prediction.bootstrap import OF_CLASSES, confusions, interval, intervals, resampled
from qkv.scripts.tasks.metrics import METRICS


def test_the_interval_covers_the_truth_nineteen_times_in_twenty() -> None:
    random, covered, rounds = np.random.default_rng(0), 0, 150
    for number in range(rounds):
        losses = random.exponential(2.0, 60)
        drawn = evaluation([("a", "a")] * 60, losses=losses.tolist())
        low, high = intervals(drawn, 200, seed=number)["loss"]
        covered += low <= 2.0 <= high
    assert 0.88 <= covered / rounds <= 0.99


def test_the_interval_of_a_mean_is_near_the_formula() -> None:
    losses = np.random.default_rng(1).exponential(2.0, 400)
    drawn = evaluation([("a", "a")] * 400, losses=losses.tolist())
    low, high = intervals(drawn, 1000, seed=0)["loss"]
    error = 1.96 * losses.std(ddof=1) / 20
    assert (low, high) == pytest.approx((losses.mean() - error, losses.mean() + error), rel=0.03)


def test_intervals_follow_from_the_seed_and_need_two_rows() -> None:
    drawn = evaluation([("a", "a"), ("b", "a"), ("c", "c")] * 5, "accuracy")
    assert intervals(drawn, 50, seed=3) == intervals(drawn, 50, seed=3)
    assert intervals(evaluation([("a", "a")], "accuracy"), 50, seed=0) == {}
    assert interval(range(101)) == (2.5, 97.5)


def test_scores_of_corpora_are_those_of_sacrebleu_on_the_chosen_rows() -> None:
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(list("abcdé"), 7)) for _ in range(40)]
    pairs = list(zip(texts[:20], texts[20:], strict=True))
    measure = resampled(evaluation(pairs, "bleu", "exact_match", "chrf"))
    for chosen in random.integers(0, 20, (5, 20)):
        predictions, references = [pairs[i][0] for i in chosen], [pairs[i][1] for i in chosen]
        values = measure(chosen)
        assert values["bleu"] == pytest.approx(corpus_bleu(predictions, [references]).score)
        assert values["chrf"] == pytest.approx(corpus_chrf(predictions, [references]).score)


def test_scores_of_classes_are_those_of_scikit_learn_on_the_chosen_rows() -> None:
    random = np.random.default_rng(0)
    names = random.choice(["a", "é", "c", "never right"], (40, 2), p=[0.6, 0.2, 0.15, 0.05]).tolist()
    measure = resampled(evaluation([(one, other) for one, other in names], *OF_CLASSES))
    for chosen in [*random.integers(0, 40, (20, 40)), np.array([3]), np.array([3, 3, 7])]:
        values = measure(chosen)
        predictions, references = zip(*(names[number] for number in chosen), strict=True)
        assert {name: values[name] for name in OF_CLASSES} == pytest.approx(
            {name: METRICS[name](predictions, references) for name in OF_CLASSES}
        )


def test_scores_of_contacts_are_those_of_the_metric_on_the_chosen_chains() -> None:
    random = np.random.default_rng(0)
    lengths = [3, *random.integers(4, 12, 19)]  # the first is too short for pairs
    pairs = [(random.random((length, length)), random.integers(0, 2, (length, length))) for length in lengths]
    measure = resampled(evaluation(pairs, "contacts"))
    for chosen in [*random.integers(0, 20, (5, 20)), np.array([0])]:
        expected = METRICS["contacts"](*zip(*(pairs[number] for number in chosen), strict=True))
        assert {name: measure(chosen)[name] for name in expected} == pytest.approx(expected)


def test_rows_with_several_classes_or_none_are_counted_whole() -> None:
    confusion = confusions([[("x", "x"), ("y", "x")], [], [("y", "y")]])
    assert confusion(np.array([0, 0, 1])).tolist() == [[2, 2], [0, 0]]
    assert confusion(np.array([2, 1, 0])).tolist() == [[1, 1], [0, 1]]
