"""Train a recipe with several values of its fields, and print which are the best on the validation split."""

import shlex
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from accelerate.state import AcceleratorState

from qkv.scripts.cli import EXPECTED
from qkv.scripts.common.environment import public_command
from qkv.scripts.common.extras import require
from qkv.scripts.common.files import RECORD, check_empty
from qkv.scripts.common.phases import say
from qkv.scripts.common.run_folder import FREE, LOCK
from qkv.scripts.common.tables import format_metric, print_columns
from qkv.scripts.data.inference.own_recipe import infer, recipe_of
from qkv.scripts.recipes.loading import is_data, load
from qkv.scripts.sweeps.record import JSON, SPLIT, SweepRecord, Trial, check_same_sweep, read_sweep
from qkv.scripts.sweeps.space import Chosen, Dimension, every_value, grid, read_space, words_of
from qkv.scripts.train import complete
from qkv.scripts.training.record import Clock
from qkv.scripts.training.resume import lock
from qkv.scripts.training.run import load_task, train

TRIALS = 20


def run(arguments: Namespace) -> None:
    """Train what is missing, and print all trials, the best first, and how to train the best again."""
    fixed, dimensions = read_space(arguments.overrides)
    count = number_of_trials(arguments.trials, dimensions)
    recipe = recipe_of(arguments.recipe, next(every_value(arguments.overrides)))
    folder = Path(recipe.output.folder or f"runs/{recipe.name}-sweep-{datetime.now():%Y%m%d-%H%M%S}")
    fixed = [word for word in fixed if not word.startswith("out=")]
    space = {dimension.label: dimension.typed for dimension in dimensions}
    wanted = SweepRecord(public_command(arguments.words), arguments.recipe, fixed, space)
    with locked(folder):
        sweep = opened(folder, wanted)
        if not recipe.data.holdout and SPLIT not in load_task(recipe).splits:
            raise ValueError(
                f"{recipe.name} has no validation split, and the test split chooses nothing; add holdout=0.1"
            )
        for number in range(1, count + 1):
            trial = trial_of(sweep, dimensions, number, folder, recipe.seed)
            say(f"trial {number} of {count}: {shlex.join(words_of([], dimensions, trial.chosen))}, in {trial.folder}")
            take(sweep, trial, words_of([*fixed, f"out={trial.folder}"], dimensions, trial.chosen), folder)
    show(sweep, dimensions, folder, recipe.seed)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other sweeps out of a folder within the block; FileExistsError where one is in it, or something else."""
    ours = {LOCK, JSON, f"{JSON}.partial"}  # what a sweep that was killed at its start leaves
    if not folder.is_dir() or not any(path.name in ours for path in folder.iterdir()):
        check_empty(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a") as file:
        lock(file, folder)
        yield


def number_of_trials(asked: int | None, dimensions: list[Dimension]) -> int:
    """Return how many trainings there are: all of a grid, or as many as asked for; ValueError where both are said."""
    if any(dimension.is_range for dimension in dimensions):
        require("optuna")
        if asked is not None and asked < 1:
            raise ValueError(f"--trials={asked} must be at least 1")
        return asked or TRIALS
    size = len(grid(dimensions))
    if asked is not None:
        raise ValueError(
            f"--trials={asked} is for ranges, such as learning_rate=1e-4..1e-2; these lists make {size} trainings"
        )
    return size


def opened(folder: Path, wanted: SweepRecord) -> SweepRecord:
    """Return the sweep of a folder, new or to go on with; ValueError where it holds another."""
    saved = read_sweep(folder)
    if saved is None:
        wanted.write(folder)
        return wanted
    check_same_sweep(saved, wanted, folder, sorted(FREE))
    saved.fixed = wanted.fixed
    return saved


def trial_of(sweep: SweepRecord, dimensions: list[Dimension], number: int, folder: Path, seed: int) -> Trial:
    """Return the trial of a number: the one that was begun, or the next."""
    if number <= len(sweep.trials):
        return sweep.trials[number - 1]
    trial = Trial(number, str(folder / f"trial-{number:03}"), chosen(sweep, dimensions, seed))
    sweep.trials.append(trial)
    return trial


def chosen(sweep: SweepRecord, dimensions: list[Dimension], seed: int) -> Chosen:
    """Return the values of the next trial: the next of a grid, or what the earlier ones suggest."""
    if not any(dimension.is_range for dimension in dimensions):
        return grid(dimensions)[len(sweep.trials)]
    from qkv.scripts.sweeps.sampling import suggest

    tried = [(trial.chosen, sweep.value(trial)) for trial in sweep.trials]
    return suggest(dimensions, tried, seed, lower_is_better=sweep.lower_is_better)


def take(sweep: SweepRecord, trial: Trial, words: list[str], folder: Path) -> None:
    """Train a trial unless it is finished, and record it; one that fails does not stop the others."""
    if trial.state == "finished" and (Path(trial.folder) / RECORD).exists():
        return
    trial.state = "running"
    sweep.write(folder)
    AcceleratorState._reset_state()  # it would hold the precision of the trial before
    try:
        recipe = infer(sweep.recipe, words)[0] if is_data(sweep.recipe) else load(sweep.recipe, words)
        finished = train(recipe, shlex.join(["qkv", "train", sweep.recipe, *words]), Clock(), complete)
        sweep.finish(trial, finished.record, recipe.output.watch)
    except EXPECTED as error:
        trial.state, trial.error = "failed", " ".join(str(error).split())
        say(f"trial {trial.number} failed: {trial.error}")
    sweep.write(folder)


def show(sweep: SweepRecord, dimensions: list[Dimension], folder: Path, seed: int) -> None:
    """Print the trials as a table, and the line that trains the best again; RuntimeError where all failed."""
    ranked = sweep.ranked()
    best = ranked[0]
    if best.state != "finished":
        raise RuntimeError(f"every trial failed, the first because {sweep.trials[0].error}")
    lines = []
    for trial in ranked:
        value = sweep.value(trial)
        shown = trial.state if value is None else format_metric(sweep.metric, value)
        minutes = "" if trial.minutes is None else f"{trial.minutes:.1f}"
        lines.append({"trial": str(trial.number), **trial.chosen, f"{SPLIT} {sweep.metric}": shown, "minutes": minutes})
    print_columns(f"{sweep.recipe}: the best first", lines, f"{folder}/sweep.csv has all metrics")
    fixed = [word for word in sweep.fixed if not word.startswith("seed=")]
    seeds = [int(best.chosen.get("seed", seed)) + 1]
    again = words_of(fixed, [one for one in dimensions if one.label != "seed"], best.chosen)
    print("the best with another seed:")
    print(shlex.join(["qkv", "train", sweep.recipe, *again, f"seed={seeds[0]}", f"out={folder}/best-seed-{seeds[0]}"]))
