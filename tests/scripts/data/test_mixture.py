"""Mixing rates of T5, and epochs that are drawn at them, each from its number alone."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest

from qkv.scripts.data.mixture import Mixture, mixing_rates
from qkv.scripts.training.sampler import places, steps
from recipes import recipe_of

SIZES = {"a": 900, "b": 90, "c": 10}
TASKS = [task for task, size in SIZES.items() for _ in range(size)]


@pytest.mark.parametrize(
    ("limit", "temperature", "expected"),
    [
        (None, 1.0, {"a": 0.9, "b": 0.09, "c": 0.01}),
        (90, 1.0, {"a": 9 / 19, "b": 9 / 19, "c": 1 / 19}),
        (5, 1.0, {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}),
        (None, 2.0, {"a": 30 / (30 + 90**0.5 + 10**0.5), "c": 10**0.5 / (30 + 90**0.5 + 10**0.5)}),
        (None, 1e9, {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}),
    ],
)
def test_rates_are_those_of_the_paper(limit: int | None, temperature: float, expected: dict[str, float]) -> None:
    rates = mixing_rates(SIZES, limit, temperature)
    assert sum(rates.values()) == pytest.approx(1) and {name: rates[name] for name in expected} == pytest.approx(
        expected
    )


def test_an_epoch_has_each_task_at_its_rate() -> None:
    mixture = Mixture.of(TASKS, None, 2.0)
    epochs = [mixture.epoch(number, seed=3) for number in range(40)]
    for epoch in epochs:
        counts = Counter(TASKS[index] for index in epoch)
        assert len(epoch) == 1000
        assert all(abs(counts[task] - 1000 * rate) < 1 for task, rate in mixture.rates.items())
    assert np.array_equal(mixture.epoch(17, seed=3), epochs[17])
    assert not np.array_equal(mixture.epoch(17, seed=4), epochs[17])


def test_a_task_shows_all_its_examples_before_any_again() -> None:
    mixture = Mixture.of(TASKS, None, 2.0)
    for task, size in SIZES.items():
        drawn = [index for number in range(12) for index in mixture.epoch(number, 0) if TASKS[index] == task]
        for start in range(0, len(drawn) - size + 1, size):
            assert len(set(drawn[start : start + size])) == size


def test_plain_examples_come_in_the_order_of_before() -> None:
    expected = [*np.random.default_rng((5, 0)).permutation(7), *np.random.default_rng((5, 1)).permutation(7)]
    assert [index for _, index in islice(places(7, 5), 14)] == expected


@pytest.mark.parametrize("lengths", [None, [len(task) + index % 7 for index, task in enumerate(TASKS)]])
def test_steps_resume_within_a_mixture(lengths: list[int] | None) -> None:
    recipe, mixture = recipe_of(batch_size=8, seed=2), Mixture.of(TASKS, 90, 1.0)
    whole = list(islice(steps(len(TASKS), recipe, lengths, mixture=mixture), 300))
    again = list(islice(steps(len(TASKS), recipe, lengths, done=133, mixture=mixture), 167))
    assert whole[133:] == again
    counts = Counter(TASKS[index] for step in whole for _, index in step)
    assert counts["a"] / counts.total() == pytest.approx(9 / 19, abs=0.02)
