"""Early stopping: better values, ties, NaN, and the end of patience."""

import json
from math import nan

import pytest

from qkv.scripts.training.early_stopping import LOWER_IS_BETTER, EarlyStopping, check_metric


def updates(stopping: EarlyStopping, *values: float) -> list[bool]:
    name = str(stopping.metric).partition(" ")[2]
    return [stopping.update(step, {"validation": {name: value}}) for step, value in enumerate(values, 1)]


def test_best_is_remembered_and_a_tie_is_not_better() -> None:
    stopping = EarlyStopping("validation accuracy", patience=2)
    assert updates(stopping, 0.5, 0.7, 0.7, 0.9) == [True, True, False, True]
    assert (stopping.best, stopping.step, stopping.waited) == (0.9, 4, 0)
    stopping = EarlyStopping("validation loss")
    assert updates(stopping, nan, nan, 1.0, nan, 0.5) == [True, True, True, False, True]
    assert (stopping.best, stopping.step) == (0.5, 5)


@pytest.mark.parametrize("name", LOWER_IS_BETTER)
def test_smaller_losses_and_error_rates_are_better(name: str) -> None:
    assert updates(EarlyStopping(f"validation {name}"), 2.0, 3.0, 1.0) == [True, False, True]


def test_patience_counts_evaluations_since_the_best() -> None:
    stopping = EarlyStopping("validation accuracy", patience=2)
    updates(stopping, 0.5, 0.4, 0.6, 0.5)
    assert not stopping.should_stop
    stopping.update(5, {"validation": {"accuracy": 0.6}})
    assert stopping.should_stop and not EarlyStopping("x", None, 1.0, 1, 99).should_stop


def test_without_a_metric_the_latest_is_the_best() -> None:
    stopping = EarlyStopping()
    assert [stopping.update(step, {"validation": {"loss": loss}}) for step, loss in ((1, 0.5), (2, 0.9))] == [True] * 2
    assert stopping.step == 2 and stopping.results == {"validation": {"loss": 0.9}} and stopping.best_step is None


def test_state_is_restored_but_for_patience() -> None:
    stopping = EarlyStopping("validation accuracy", patience=3)
    updates(stopping, 0.5, 0.7, 0.6)
    other = EarlyStopping("validation accuracy", patience=2)
    other.load_state_dict(json.loads(json.dumps(vars(stopping))))
    assert (other.step, other.waited, other.results, other.patience) == (2, 1, {"validation": {"accuracy": 0.7}}, 2)


@pytest.mark.parametrize("metric", ["test accuracy", "accuracy", "val loss"])
def test_metrics_that_are_not_evaluated_are_refused(metric: str) -> None:
    with pytest.raises(ValueError, match=f"watch='{metric}'.*validation"):
        check_metric(metric, ["validation", "test"])
    check_metric("validation loss", ["validation", "test"])
    check_metric(None, [])
    with pytest.raises(ValueError, match="watch='validation f1'.*validation accuracy"):
        EarlyStopping("validation f1").update(1, {"validation": {"accuracy": 0.5}})
