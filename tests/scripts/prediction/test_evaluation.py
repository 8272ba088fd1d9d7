"""Tables as test splits, rows in batches, and metrics of chosen rows."""

from collections.abc import Callable
from pathlib import Path

import pytest

import own_runs
from evaluations import evaluation
from qkv.scripts.prediction import evaluation as module
from qkv.scripts.prediction.evaluated_data import table_test
from qkv.scripts.prediction.evaluation import evaluate_rows
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


SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("numbers", "pairs", "targets", "responses", "masked")]


@pytest.mark.parametrize("kind", ["classes", "tags", "texts", "images", "folds", *SLOW])
def test_rows_get_in_a_batch_the_numbers_they_get_alone(
    kind: str, run_of: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_source(str(run_of(kind)))
    task, calls = table_test(str(own_runs.data(kind, tmp_path, 7)), source, {}), []
    source.model.register_forward_pre_hook(lambda *given: calls.append(given))
    together, batched = evaluate_rows(source, task), len(calls)
    monkeypatch.setattr(module, "TOGETHER", ())
    alone = evaluate_rows(source, task)
    assert batched < len(calls) - batched or kind in ("folds", "texts")
    assert [row["row"] for row in together.rows] == list(range(1, len(together.rows) + 1))
    for one, other in (
        (together.rows, alone.rows),
        (together.sums, alone.sums),
        ([together.metrics()], [alone.metrics()]),
    ):
        for row, expected in zip(one, other, strict=True):
            close = {
                key: pytest.approx(each, rel=1e-4, abs=1e-5) for key, each in expected.items() if type(each) is float
            }
            assert row == expected | close
