"""Lengths of trainings by passes over the data."""

import math
from typing import Any

from qkv.scripts.common.phases import say
from qkv.scripts.recipes.loading import changed
from qkv.scripts.recipes.schema import Recipe


def with_max_steps(recipe: Recipe, train: Any) -> Recipe:
    """Return the recipe with `epochs` as the optimizer steps that they take; one without is returned as it is.

    ValueError where the number of examples is not known, as of a stream.
    """
    epochs, batch_size = recipe.optimization.epochs, recipe.optimization.batch_size
    if epochs is None:
        return recipe
    if not hasattr(train, "__len__"):
        raise ValueError(
            f"epochs={epochs:g} needs the number of examples, which a stream does not tell; give max_steps="
        )
    steps = math.ceil(epochs * len(train) / batch_size)
    say(f"epochs={epochs:g} is max_steps={steps}: {len(train):,} examples, {batch_size} in a step")
    return changed(recipe, max_steps=steps, epochs=None)
