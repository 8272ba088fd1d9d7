"""Send the metrics of a training to the trackers that a recipe names, through Accelerate."""

import json
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from qkv.scripts.common.environment import without_folder
from qkv.scripts.common.extras import require
from qkv.scripts.common.words import did_you_mean
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.training.record import recipe_fields

TRACKERS = ("tensorboard", "trackio", "wandb", "mlflow")


def tracker_names(recipe: Recipe) -> list[str]:
    """Return the trackers that a recipe names; ValueError for an unknown one, MissingExtraError for a missing one."""
    names = [name.strip() for name in (recipe.output.tracker or "").split(",") if name.strip()]
    for name in names:
        if name not in TRACKERS:
            raise ValueError(f"tracker={name!r} is not known; {did_you_mean(name, TRACKERS, 'trackers')}")
        require(name)
    return names


def start_trackers(accelerator: Accelerator, recipe: Recipe, folder: Path, done: int) -> None:
    """Start the recipe's trackers on the main process, named as the folder, after `done` steps."""
    if not accelerator.is_main_process or not recipe.output.tracker:
        return
    name = without_folder(str(folder))
    options = {
        "tensorboard": {"purge_step": done + 1} if done else {},  # steps after the checkpoint are logged again
        "trackio": {"name": name},
        "wandb": {"name": name},
        "mlflow": {"run_name": name},
    }
    accelerator.project_configuration.logging_dir = str(folder)
    accelerator.init_trackers(recipe.name, settings(recipe), options)


def settings(recipe: Recipe) -> dict[str, str | int | float | bool]:
    """Return a recipe as trackers take it: plain values, without the folders of this machine."""
    plain: dict[str, Any] = {}
    for key, value in recipe_fields(recipe).items():
        plain |= {f"{key}.{name}": each for name, each in value.items()} if isinstance(value, dict) else {key: value}
    known = {key: value for key, value in plain.items() if value is not None}
    return {key: value if isinstance(value, str | int | float) else json.dumps(value) for key, value in known.items()}
