"""Send the metrics of a training to trackers, where a recipe names some: nothing leaves the machine without that.

Accelerate has the trackers and speaks to their libraries, in the first process alone.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from qkv.scripts.common.environment import data_name, without_folder
from qkv.scripts.common.extras import require
from qkv.scripts.common.words import did_you_mean
from qkv.scripts.recipes.keys import flat
from qkv.scripts.recipes.schema import Fields, Recipe

TRACKERS = ("tensorboard", "trackio", "wandb", "mlflow")
# How libraries name a run that they have started; TensorBoard's is its folder.
RUNS: dict[str, Callable[[Any], str]] = {
    "trackio": lambda run: run.name,
    "wandb": lambda run: run.id,
    "mlflow": lambda run: run.info.run_id,
}
# Fields whose values are files and folders of this machine.
PLACES = ("out", "init")


def names_of(recipe: Recipe) -> list[str]:
    """Return the trackers that a recipe names."""
    return [name.strip() for name in (recipe.output.tracker or "").split(",") if name.strip()]


def check_trackers(recipe: Recipe) -> None:
    """Raise ValueError for a tracker that is not known, MissingExtraError for one that is not installed."""
    for name in names_of(recipe):
        if name not in TRACKERS:
            raise ValueError(f"tracker={name!r} is not known; {did_you_mean(name, TRACKERS, 'trackers')}")
        require(name)


def start_trackers(accelerator: Accelerator, recipe: Recipe, folder: Path, runs: Mapping[str, str], step: int) -> None:
    """Start the recipe's trackers in the first process, of a project with its name and a run with that of its folder.

    A training that is resumed after a `step` goes on in its `runs`, by tracker.
    """
    if not accelerator.is_main_process or not names_of(recipe):
        return
    accelerator.project_configuration.logging_dir = str(folder)
    options = {name: options_of(name, without_folder(str(folder)), runs.get(name), step) for name in names_of(recipe)}
    accelerator.init_trackers(recipe.name, None if step else settings(recipe), options)


def options_of(name: str, shown: str, run: str | None, step: int) -> Fields:
    """Return what a library is told on the run: its name, and how it goes on in one that it knows."""
    if name == "tensorboard":
        return {"purge_step": step + 1} if step else {}  # what was logged after the checkpoint is logged again
    if name == "mlflow":
        return {"run_id": run} if run else {"run_name": shown}
    if name == "wandb":
        return {"name": shown, **({"id": run, "resume": "allow"} if run else {})}
    return {"name": run or shown, "resume": "allow" if run else "never"}


def running(accelerator: Accelerator, recipe: Recipe) -> dict[str, str]:
    """Return the runs of the trackers that are on, for a checkpoint."""
    started = {tracker.name: tracker for tracker in accelerator.trackers} if names_of(recipe) else {}
    return {name: RUNS[name](tracker.tracker) for name, tracker in started.items() if name in RUNS}


def settings(recipe: Recipe) -> dict[str, str | int | float | bool]:
    """Return a recipe as trackers take it: one level of plain values, without the folders of this machine."""
    values = {key: value for key, value in flat(recipe).items() if value is not None}
    values["data"] = data_name(values["data"])
    values |= {key: without_folder(values[key]) for key in PLACES if key in values}
    groups = {key: value for key, value in values.items() if isinstance(value, dict)}
    plain = {key: value for key, value in values.items() if key not in groups}
    plain |= {f"{group}.{key}": value for group, fields in groups.items() for key, value in fields.items()}
    return {key: value if isinstance(value, str | int | float) else json.dumps(value) for key, value in plain.items()}
