"""Watching: what counts as better, and when patience is at its end."""

import json

import pytest

from qkv.scripts.training.early_stopping import FALLING, Watch, refuse_unwatched


def results(value: float, name: str = "accuracy") -> dict[str, dict[str, float]]:
    return {"validation": {name: value}}


def test_the_best_is_remembered_and_a_tie_is_not_better() -> None:
    watch = Watch("validation accuracy", patience=2)
    found = [watch.note(step, results(value)) for step, value in enumerate((0.5, 0.7, 0.7, 0.9), 1)]
    assert found == [True, True, False, True]
    assert (watch.best, watch.step, watch.waited) == (0.9, 4, 0)


@pytest.mark.parametrize("name", FALLING)
def test_less_is_better_of_losses_and_errors(name: str) -> None:
    watch = Watch(f"validation {name}")
    assert [watch.note(1, results(value, name)) for value in (2.0, 3.0, 1.0)] == [True, False, True]


def test_patience_counts_evaluations_since_the_best() -> None:
    watch = Watch("validation accuracy", patience=2)
    seen = []
    for step, value in enumerate((0.5, 0.4, 0.6, 0.5, 0.6), 1):
        watch.note(step, results(value))
        seen.append(watch.exhausted)
    assert seen == [False, False, False, False, True]
    assert not Watch("x", None, 1.0, 1, 99).exhausted


def test_without_a_metric_the_latest_is_the_best() -> None:
    watch = Watch()
    assert [watch.note(step, results(value)) for step, value in enumerate((0.5, 0.4), 1)] == [True, True]
    assert watch.step == 2 and watch.results == results(0.4)


def test_it_goes_on_from_a_state() -> None:
    watch = Watch("validation accuracy", patience=3)
    for step, value in enumerate((0.5, 0.7, 0.6), 1):
        watch.note(step, results(value))
    other = Watch("validation accuracy", patience=2)
    other.restore(json.loads(json.dumps(watch.state())))
    assert (other.step, other.waited, other.results, other.patience) == (2, 1, results(0.7), 2)


def test_an_unknown_metric_is_refused_with_those_there_are() -> None:
    message = "watch='validation f1' is not among what is measured: validation accuracy"
    with pytest.raises(ValueError, match=message):
        Watch("validation f1").note(1, results(0.5))


@pytest.mark.parametrize("metric", ["test accuracy", "accuracy", "val loss"])
def test_only_what_is_evaluated_on_the_way_can_be_watched(metric: str) -> None:
    with pytest.raises(ValueError, match=f"watch='{metric}' is of no split that is evaluated on the way: validation;"):
        refuse_unwatched(metric, ["validation", "test"])
    refuse_unwatched("validation loss", ["validation", "test"])
    refuse_unwatched(None, [])
