"""Send the metrics of a training to trackers, where a recipe names some: nothing leaves the machine without that."""

from pathlib import Path

from accelerate import Accelerator

from qkv.scripts.recipes.schema import Recipe


def start_trackers(accelerator: Accelerator, recipe: Recipe, folder: Path) -> None:
    """Start the recipe's trackers for a run folder."""
    accelerator.project_configuration.logging_dir = str(folder)
    accelerator.init_trackers(recipe.name)
