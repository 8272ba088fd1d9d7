"""Schedules: the shape each paper draws, and the peak that the recipe names."""

from typing import get_args, get_type_hints

import pytest
import torch

from qkv.scripts.recipes.loading import changed
from qkv.scripts.recipes.schema import Recipe, Schedule
from qkv.scripts.training.schedule import make_schedule
from recipes import recipe_of

RECIPE = recipe_of(max_steps=100, warmup_steps=10, decay_steps=20, learning_rate=0.5)


def rates(recipe: Recipe) -> list[float]:
    """The learning rate of each step."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=recipe.optimization.learning_rate)
    schedule = make_schedule(optimizer, recipe.schedule, recipe.optimization.max_steps)
    found = []
    for _ in range(recipe.optimization.max_steps):
        found.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return found


def test_noam_is_the_formula_of_the_paper() -> None:
    width, warmup = 512, 10
    peak = width**-0.5 * warmup**-0.5
    expected = [width**-0.5 * min(step**-0.5, step * warmup**-1.5) for step in range(1, 101)]
    assert rates(changed(RECIPE, schedule="noam", learning_rate=peak)) == pytest.approx(expected, rel=1e-12)
    assert max(expected) == pytest.approx(peak)


@pytest.mark.parametrize("name", get_args(get_type_hints(Schedule)["name"]))
def test_the_peak_is_the_learning_rate_and_is_reached_at_the_end_of_warm_up(name: str) -> None:
    found = rates(changed(RECIPE, schedule=name))
    assert max(found) == pytest.approx(0.5) and found[0] < 0.06
    assert found.index(max(found)) == {"noam": 9}.get(name, 10)


def test_wsd_keeps_its_peak_until_the_decay() -> None:
    found = rates(changed(RECIPE, schedule="wsd"))
    assert found[10:81] == pytest.approx([0.5] * 71)
    assert found[80:] == pytest.approx([0.5 * (1 - done / 20) for done in range(20)])


@pytest.mark.parametrize("name", ["linear", "cosine", "wsd"])
def test_what_decays_ends_near_nothing(name: str) -> None:
    assert rates(changed(RECIPE, schedule=name))[-1] < 0.03
