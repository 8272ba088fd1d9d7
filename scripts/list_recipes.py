"""Print one table of all recipes: model, data, size and measured results."""

from argparse import Namespace
from typing import Any

from qkv.scripts.common.tables import format_metric, print_columns, scaled
from qkv.scripts.recipes.loading import load, names, read_card
from qkv.scripts.recipes.schema import Recipe

LEGEND = (
    "size: parameters; test: result of one run; min: minutes of its training on a CPU, all from the committed cards. "
    "qkv train RECIPE --help lists the fields of a recipe."
)


def run(arguments: Namespace) -> None:
    """Print the table."""
    lines = [row(load(name), read_card(name)) for name in names()]
    print_columns("", lines, LEGEND, left=("recipe", "model and data"))


def row(recipe: Recipe, record: dict[str, Any] | None) -> dict[str, str]:
    """Return the cells of a recipe, with dashes for missing measurements."""
    measured = record["recipe"]["data"] if record else recipe.data.source
    other = f", measured on data={measured}" if measured != recipe.data.source else ""
    cells = {"recipe": recipe.name, "model and data": f"{recipe.title}; data={recipe.data.source}{other}"}
    if record is None:
        return cells | {"size": "-", "test": "-", "min": "-"}
    metric, value = next((name, value) for name, value in record["metrics"]["test"].items() if name != "loss")
    minutes = f"{record['time']['training_wall_s'] / 60:.0f}"
    shown = f"{metric} {format_metric(metric, value)}"
    return cells | {"size": scaled(record["parameters"], ""), "test": shown, "min": minutes}
