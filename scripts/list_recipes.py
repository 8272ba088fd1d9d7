"""Print one table of all recipes: what each trains, on what data, how large, and what was measured."""

import shutil
from argparse import Namespace
from textwrap import wrap
from typing import Any

from qkv.scripts.common.tables import format_metric
from qkv.scripts.common.words import words_of_class
from qkv.scripts.recipes.cards import read_card
from qkv.scripts.recipes.loading import load, names
from qkv.scripts.recipes.schema import Recipe

HEADER = ("recipe", "task", "size", "test result", "min")
LINE = "{:19} {:23} {:>5}  {:22} {:>4}"
LEGEND = (
    "size: parameters; test result: of one run; min: minutes of its training on a CPU, all from the committed cards. "
    "qkv train RECIPE --help lists the fields of a recipe."
)


def run(arguments: Namespace) -> None:
    """Print the table: a line of facts for each recipe, and below it what it trains on which data."""
    width = min(shutil.get_terminal_size().columns, 100)
    print(LINE.format(*HEADER).rstrip())
    for name in names():
        recipe, record = load(name), read_card(name)
        print(LINE.format(*row(recipe, record)).rstrip())
        print("\n".join(wrap(about(recipe, record), width, initial_indent="    ", subsequent_indent="    ")))
    print("", *wrap(LEGEND, width), sep="\n")


def row(recipe: Recipe, record: dict[str, Any] | None) -> list[str]:
    """Return the cells of a recipe; a dash where nothing was measured."""
    cells = [recipe.name, task_of(recipe.model.architecture)]
    if record is None:
        return [*cells, "-", "-", "-"]
    metric, value = next((name, value) for name, value in record["metrics"]["test"].items() if name != "loss")
    minutes = f"{record['time']['training_wall_s'] / 60:.0f}"
    return [*cells, counted(record["parameters"]), f"{metric} {format_metric(metric, value)}", minutes]


def about(recipe: Recipe, record: dict[str, Any] | None) -> str:
    """Return what a recipe trains on which data, and on which it was measured if on others."""
    preset = f", preset {recipe.model.preset}" if recipe.model.preset else ""
    measured = record["recipe"]["data"] if record else recipe.data.source
    other = f", measured on data={measured}" if measured != recipe.data.source else ""
    return f"{recipe.title}{preset}; data={recipe.data.source}{other}"


def task_of(architecture: str) -> str:
    """Return the task of an architecture in words: `causal LM` of QkvDecoderForCausalLM."""
    return words_of_class(architecture.rpartition("For")[2].removeprefix("Qkv").removesuffix("Model"))


def counted(number: int) -> str:
    """Return a number of parameters in thousands or millions."""
    return f"{number / 1e3:.0f}k" if number < 999_500 else f"{number / 1e6:.3g}M"
