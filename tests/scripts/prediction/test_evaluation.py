"""Metrics of chosen rows, calibration, and the tables of rows."""

from pathlib import Path

import numpy as np
import pytest

from evaluations import evaluation
from qkv.scripts.prediction.evaluation import calibration_error, reliability
from qkv.scripts.prediction.report import worst, write_report


def test_metrics_of_chosen_rows_are_those_of_a_smaller_test() -> None:
    whole = evaluation([("a", "a"), ("b", "a"), ("b", "b")], "accuracy", losses=[1.0, 2.0, 6.0])
    assert whole.metrics() == {"loss": 3.0, "accuracy": pytest.approx(2 / 3)}
    assert whole.metrics([2, 2, 1]) == {"loss": pytest.approx(14 / 3), "accuracy": pytest.approx(2 / 3)}


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
