"""Tables as test splits, metrics of chosen rows, and calibration."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import own_runs
from evaluations import evaluation
from qkv.scripts.evaluate import calibration_error
from qkv.scripts.prediction.evaluated_data import table_test
from qkv.scripts.prediction.source import open_source


@pytest.mark.parametrize("kind", ["classes", "tags", "images", "folds"])
def test_all_of_a_table_is_the_test_split_but_a_test_split_is_it_alone(
    kind: str, run_of: Callable[[str], Path], tmp_path: Path
) -> None:
    source, table = open_source(str(run_of(kind))), own_runs.data(kind, tmp_path, 5)
    assert table_test(str(table), source, {}).sizes() == {"test": 5}
    own_runs.data(kind, tmp_path / "data", 3).rename(tmp_path / "data" / "test.jsonl")
    (tmp_path / "data" / "train.jsonl").write_text(table.read_text())
    assert table_test(str(tmp_path / "data"), source, {}).sizes() == {"test": 3}


def test_metrics_of_chosen_rows_are_those_of_a_smaller_test() -> None:
    whole = evaluation([("a", "a"), ("b", "a"), ("b", "b")], "accuracy", losses=[1.0, 2.0, 6.0])
    assert whole.metrics() == {"loss": 3.0, "accuracy": pytest.approx(2 / 3)}
    assert whole.metrics([2, 2, 1]) == {"loss": pytest.approx(14 / 3), "accuracy": pytest.approx(2 / 3)}


def test_calibration_against_the_plain_sum() -> None:
    random = np.random.default_rng(0)
    scores, correct = [*random.random(299).tolist(), 1.0], (random.random(300) < 0.5).tolist()
    total = 0.0
    for bottom in range(10):
        own = [i for i in range(300) if min(int(scores[i] * 10), 9) == bottom]
        total += abs(sum(scores[i] for i in own) - sum(correct[i] for i in own))
    rows: Any = [{"score": score, "correct": right} for score, right in zip(scores, correct, strict=True)]
    assert calibration_error(SimpleNamespace(rows=rows)) == pytest.approx(total / 300)
