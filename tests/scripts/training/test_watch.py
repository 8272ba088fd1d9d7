"""Watching: what counts as better, and when patience is at its end."""

import pytest

from qkv.scripts.training.watch import FALLING, Watch


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


def test_an_unknown_metric_is_refused_with_those_there_are() -> None:
    message = "watch='validation f1' is not among what is measured: validation accuracy"
    with pytest.raises(ValueError, match=message):
        Watch("validation f1").note(1, results(0.5))
