"""Intervals and calibration against independent references."""

from pathlib import Path

import numpy as np
import pytest
from sacrebleu import corpus_bleu, corpus_chrf

from evaluations import evaluation
from qkv.scripts.prediction.evaluation import calibration_error, interval, intervals, reliability, resampled
from qkv.scripts.prediction.report import worst, write_report


def test_metrics_of_chosen_rows_are_those_of_a_smaller_test() -> None:
    whole = evaluation([("a", "a"), ("b", "a"), ("b", "b")], "accuracy", losses=[1.0, 2.0, 6.0])
    assert whole.metrics() == {"loss": 3.0, "accuracy": pytest.approx(2 / 3)}
    assert whole.metrics([2, 2, 1]) == {"loss": pytest.approx(14 / 3), "accuracy": pytest.approx(2 / 3)}


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


def test_calibration_against_the_plain_sum() -> None:
    random = np.random.default_rng(0)
    scores, correct = random.random(300), random.random(300) < 0.5
    total = 0.0
    for bottom in range(10):
        own = [i for i in range(300) if bottom / 10 <= scores[i] < (bottom + 1) / 10]
        total += abs(sum(scores[i] for i in own) - sum(bool(correct[i]) for i in own))
    assert calibration_error(scores.tolist(), correct.tolist()) == pytest.approx(total / 300)
    assert calibration_error([1.0, 1.0], [True, True]) == 0 and calibration_error([1.0], [False]) == 1
    assert reliability([1.0, 0.0], [True, False]) == [(0.0, 0.0, 1), (1.0, 1.0, 1)]


def test_the_worst_rows_come_first(tmp_path: Path) -> None:
    rows = [{"loss": float(number % 70), "score": number / 100} for number in range(100)]
    assert [row["loss"] for row in worst(rows)[:3]] == [69.0, 68.0, 67.0] and len(worst(rows)) == 50
    sure = [{"correct": number % 2 == 0, "score": number / 10} for number in range(6)]
    assert [row["score"] for row in worst(sure)] == [0.5, 0.3, 0.1]
    drawn = evaluation([("a", "a"), ("b", "a")], "accuracy")
    assert write_report(tmp_path, drawn, {"é": 1}) == ["metrics.json", "rows.csv", "worst.csv"]
