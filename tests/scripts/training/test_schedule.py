"""Schedules: the shape of each paper, the recipe's peak, and epochs as steps."""

import math
from typing import get_args, get_type_hints

import pytest
import torch

from qkv.scripts.recipes.loading import changed, load
from qkv.scripts.recipes.schema import Recipe, Schedule
from qkv.scripts.training.schedule import make_schedule, with_max_steps
from recipes import recipe_of

RECIPE = recipe_of(max_steps=100, warmup_steps=10, decay_steps=20, learning_rate=0.5)


def rates(recipe: Recipe) -> list[float]:
    """The learning rate of each step."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=recipe.optimization.learning_rate)
    schedule = make_schedule(optimizer, recipe.schedule, recipe.optimization.max_steps)
    (rule,) = schedule.lr_lambdas
    return [schedule.base_lrs[0] * rule(done) for done in range(recipe.optimization.max_steps)]


def test_noam_equals_the_formula_of_the_paper() -> None:
    width, warmup = 512, 10
    peak = width**-0.5 * warmup**-0.5
    expected = [width**-0.5 * min(step**-0.5, step * warmup**-1.5) for step in range(1, 101)]
    assert rates(changed(RECIPE, schedule="noam", learning_rate=peak)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", get_args(get_type_hints(Schedule)["name"]))
def test_peak_is_reached_at_the_end_of_warm_up(name: str) -> None:
    found = rates(changed(RECIPE, schedule=name))
    assert max(found) == pytest.approx(0.5) and found[0] < 0.06
    assert found.index(max(found)) == {"noam": 9}.get(name, 10)
    assert found[-1] < 0.03 or name in ("noam", "constant_with_warmup")
    decays = [0.5] * 71 + [0.5 * (1 - done / 20) for done in range(1, 20)]
    assert name != "wsd" or found[10:] == pytest.approx(decays)


@pytest.mark.parametrize("epochs", [0.5, 1, 3])
@pytest.mark.parametrize("size", [1, 31, 32, 33, 1000])
def test_epochs_are_the_fewest_steps_over_all_examples(epochs: float, size: int) -> None:
    recipe = load("digits", [f"epochs={epochs}", "batch_size=32"])
    steps = math.ceil(epochs * size / 32)
    assert with_max_steps(recipe, range(size)) == changed(recipe, max_steps=steps, epochs=None)


def test_epochs_of_a_stream_are_refused() -> None:
    recipe = load("digits")
    assert with_max_steps(recipe, range(9)) is recipe
    with pytest.raises(ValueError, match=r"epochs=2 .*max_steps"):
        with_max_steps(load("gpt2-124m", ["epochs=2"]), iter(()))
