"""Passes over the data as optimizer steps."""

import math

import pytest

from qkv.scripts.recipes.loading import changed, load
from qkv.scripts.training.epochs import with_max_steps


@pytest.mark.parametrize("epochs", [0.5, 1, 3])
@pytest.mark.parametrize("size", [1, 31, 32, 33, 1000])
def test_epochs_are_enough_steps_to_see_every_example_as_often(
    epochs: float, size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = load("digits", [f"epochs={epochs}", "batch_size=32"])
    steps = with_max_steps(recipe, range(size))
    most = steps.optimization.max_steps
    assert 32 * most >= epochs * size > 32 * (most - 1) and most == math.ceil(epochs * size / 32)
    assert steps == changed(recipe, max_steps=most, epochs=None)
    assert f"epochs={epochs:g} is max_steps={most}: {size:,} examples" in capsys.readouterr().err


def test_a_recipe_of_steps_stays() -> None:
    recipe = load("digits")
    assert with_max_steps(recipe, range(9)) is recipe


def test_a_stream_has_no_number_of_examples() -> None:
    with pytest.raises(ValueError, match="epochs=2 needs the number of examples"):
        with_max_steps(load("gpt2-124m", ["epochs=2"]), iter(()))
