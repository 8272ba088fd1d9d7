"""Send the metrics of a training to the trackers that a recipe names, through Accelerate."""

import json
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from qkv.scripts.common.environment import without_folder
from qkv.scripts.common.extras import require
from qkv.scripts.common.words import did_you_mean
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.training.record import recipe_fields

TRACKERS = ("tensorboard", "trackio", "wandb", "mlflow")
# The id of a run, as each library has it; TensorBoard's is its folder.
RUN_IDS = {"trackio": attrgetter("name"), "wandb": attrgetter("id"), "mlflow": attrgetter("info.run_id")}


def tracker_names(recipe: Recipe) -> list[str]:
    """Return the trackers that a recipe names."""
    return [name.strip() for name in (recipe.output.tracker or "").split(",") if name.strip()]


def check_trackers(recipe: Recipe) -> None:
    """Raise ValueError for an unknown tracker, MissingExtraError for one that is not installed."""
    for name in tracker_names(recipe):
        if name not in TRACKERS:
            raise ValueError(f"tracker={name!r} is not known; {did_you_mean(name, TRACKERS, 'trackers')}")
        require(name)


def start_trackers(
    accelerator: Accelerator, recipe: Recipe, folder: Path, runs: Mapping[str, str], done: int
) -> dict[str, str]:
    """Start the recipe's trackers on the main process, or continue in `runs` after `done` steps; return their ids."""
    if not accelerator.is_main_process or not tracker_names(recipe):
        return {}
    name = without_folder(str(folder))
    options = {
        "tensorboard": {"purge_step": done + 1} if done else {},  # steps after the checkpoint are logged again
        "trackio": {"name": runs.get("trackio", name), "resume": "allow" if "trackio" in runs else "never"},
        "wandb": {"name": name} | ({"id": runs["wandb"], "resume": "allow"} if "wandb" in runs else {}),
        "mlflow": {"run_id": runs["mlflow"]} if "mlflow" in runs else {"run_name": name},
    }
    accelerator.project_configuration.logging_dir = str(folder)
    accelerator.init_trackers(recipe.name, None if done else settings(recipe), options)
    return {one.name: RUN_IDS[one.name](one.tracker) for one in accelerator.trackers if one.name in RUN_IDS}


def settings(recipe: Recipe) -> dict[str, str | int | float | bool]:
    """Return a recipe as trackers take it: plain values, without the folders of this machine."""
    plain: dict[str, Any] = {}
    for key, value in recipe_fields(recipe).items():
        plain |= {f"{key}.{name}": each for name, each in value.items()} if isinstance(value, dict) else {key: value}
    known = {key: value for key, value in plain.items() if value is not None}
    return {key: value if isinstance(value, str | int | float) else json.dumps(value) for key, value in known.items()}
