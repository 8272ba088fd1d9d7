"""Watching: what counts as better, and when patience is at its end."""

import json
from math import nan

import pytest

from qkv.scripts.training.early_stopping import LOWER_IS_BETTER, EarlyStopping, check_metric


def results(value: float, name: str = "accuracy") -> dict[str, dict[str, float]]:
    return {"validation": {name: value}}


def test_the_best_is_remembered_and_a_tie_is_not_better() -> None:
    watch = EarlyStopping("validation accuracy", patience=2)
    found = [watch.update(step, results(value)) for step, value in enumerate((0.5, 0.7, 0.7, 0.9), 1)]
    assert found == [True, True, False, True]
    assert (watch.best, watch.step, watch.waited) == (0.9, 4, 0)


@pytest.mark.parametrize("name", LOWER_IS_BETTER)
def test_less_is_better_of_losses_and_errors(name: str) -> None:
    watch = EarlyStopping(f"validation {name}")
    assert [watch.update(1, results(value, name)) for value in (2.0, 3.0, 1.0)] == [True, False, True]


def test_any_number_is_better_than_none() -> None:
    watch = EarlyStopping("validation loss", patience=2)
    found = [watch.update(step, results(value, "loss")) for step, value in enumerate((nan, nan, 1.0, nan, 0.5), 1)]
    assert found == [True, True, True, False, True] and (watch.best, watch.step) == (0.5, 5)


def test_patience_counts_evaluations_since_the_best() -> None:
    watch = EarlyStopping("validation accuracy", patience=2)
    seen = []
    for step, value in enumerate((0.5, 0.4, 0.6, 0.5, 0.6), 1):
        watch.update(step, results(value))
        seen.append(watch.should_stop)
    assert seen == [False, False, False, False, True]
    assert not EarlyStopping("x", None, 1.0, 1, 99).should_stop


def test_without_a_metric_the_latest_is_the_best() -> None:
    watch = EarlyStopping()
    assert [watch.update(step, results(value)) for step, value in enumerate((0.5, 0.4), 1)] == [True, True]
    assert watch.step == 2 and watch.results == results(0.4)


def test_it_goes_on_from_a_state() -> None:
    watch = EarlyStopping("validation accuracy", patience=3)
    for step, value in enumerate((0.5, 0.7, 0.6), 1):
        watch.update(step, results(value))
    other = EarlyStopping("validation accuracy", patience=2)
    other.load_state_dict(json.loads(json.dumps(watch.state_dict())))
    assert (other.step, other.waited, other.results, other.patience) == (2, 1, results(0.7), 2)


def test_an_unknown_metric_is_refused_with_those_there_are() -> None:
    message = "watch='validation f1' is not among what is measured: validation accuracy"
    with pytest.raises(ValueError, match=message):
        EarlyStopping("validation f1").update(1, results(0.5))


@pytest.mark.parametrize("metric", ["test accuracy", "accuracy", "val loss"])
def test_only_what_is_evaluated_on_the_way_can_be_watched(metric: str) -> None:
    with pytest.raises(
        ValueError, match=f"watch='{metric}' is of no split that is evaluated during training: validation;"
    ):
        check_metric(metric, ["validation", "test"])
    check_metric("validation loss", ["validation", "test"])
    check_metric(None, [])
