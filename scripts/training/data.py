"""What is learned from? The data sets that a recipe can name, each made into a Task."""

from collections.abc import Callable

from qkv.scripts.training.digits import digits
from qkv.scripts.training.recipe import Recipe, meant
from qkv.scripts.training.task import Task

TASKS: dict[str, Callable[[Recipe], Task]] = {"digits": digits}


def load(recipe: Recipe) -> Task:
    """The recipe's data; ValueError when there is no data set of that name."""
    if recipe.data not in TASKS:
        raise ValueError(f"there is no data set {recipe.data!r}; {meant(recipe.data, list(TASKS), 'data sets')}")
    return TASKS[recipe.data](recipe)
