"""Train a recipe with several values of its fields, chosen by optuna, and print the trials, the best first."""

import math
import re
import shlex
from argparse import Namespace
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any

import optuna
from accelerate.state import AcceleratorState
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from qkv.scripts.cli import EXPECTED
from qkv.scripts.common.phases import say
from qkv.scripts.common.run_folder import FREE, LOCK
from qkv.scripts.common.tables import print_table
from qkv.scripts.data.inference.own_recipe import infer, recipe_of
from qkv.scripts.recipes.fields.aliases import fields_of
from qkv.scripts.recipes.keys import recipe_fields
from qkv.scripts.recipes.loading import TEXTS, is_data, load
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.train import complete
from qkv.scripts.training.early_stopping import LOWER_IS_BETTER
from qkv.scripts.training.record import Clock
from qkv.scripts.training.resume import lock
from qkv.scripts.training.run import load_task, train

# Metrics that rank the trials of a recipe without `watch`: the first that its task measures.
RANKED_BY = ("accuracy", "ap", "wer", "bleu", "exact_match", "retrieval_seen", "rmse", "loss")
SINGLE = {*TEXTS, "data", "name", "out", "tracker"}  # a comma in their values separates nothing
NUMBER = r"([-+]?\d*\.?\d+(?:e[-+]?\d+)?)"


def run(arguments: Namespace) -> None:
    """Train the missing trials, and print all of them and the command that trains the best from another seed."""
    name, words = arguments.recipe, dict(word.partition("=")[::2] for word in arguments.overrides)
    space = {key: values for key, value in words.items() if (values := distribution(key, value))}
    if not space:
        raise ValueError("a sweep needs a list or a range of values, such as learning_rate=1e-4..1e-2")
    choices = {key: getattr(one, "choices", None) or (one.low, one.high) for key, one in space.items()}
    first = words | {key: values[0] for key, values in choices.items()}
    recipe = recipe_of(name, words_of(first))
    for key, value in [(key, value) for key, values in choices.items() for value in values[1:]]:
        recipe_of_trial(name, first | {key: value})  # a mistake in any value is reported before the first trial
    if not recipe.data.holdout and "validation" not in load_task(recipe).splits:
        raise ValueError(f"{recipe.name} has no validation split, and the test split ranks nothing; add holdout=0.1")
    is_grid = arguments.trials is None and all(isinstance(one, CategoricalDistribution) for one in space.values())
    grid = [dict(zip(choices, row, strict=True)) for row in product(*choices.values())] if is_grid else []
    folder = Path(recipe.output.folder or f"runs/{recipe.name}-sweep-{datetime.now():%Y%m%d-%H%M%S}")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a") as file:
        lock(file, folder)
        study = open_study(folder, [name, *sorted(f"{key}={words[key]}" for key in words.keys() - FREE)])
        for number in range(len(grid) or arguments.trials or 20):
            if number == len(study.trials):
                chosen = grid[number] if grid else sample(study, space, recipe.seed)
                study.add_trial(create_trial(state=TrialState.RUNNING, params=chosen, distributions=space))
            trial = study.trials[number]
            if not trial.state.is_finished():  # new, or killed
                take(study, number, name, words | trial.params | {"out": folder / f"trial-{number + 1:03}"})
    show(study, name, words, folder)


def distribution(key: str, value: str) -> Any:
    """Return optuna's distribution of a list or a range; None for a single value."""
    field = fields_of(key)[0]
    if field in SINGLE or value.startswith(("[", "{", "'", '"')):
        return None
    if not (match := re.fullmatch(rf"{NUMBER}\.\.{NUMBER}", value)):
        return CategoricalDistribution(list(dict.fromkeys(value.split(",")))) if "," in value else None
    known = recipe_fields().get(field)
    is_whole = value.replace("..", "").isdigit() and (known is None or "int" in str(known.kind))
    low, high = map(int if is_whole else float, match.groups())
    if low >= high:
        raise ValueError(f"{key}={value} is an empty range; write the smaller number first")
    return (IntDistribution if is_whole else FloatDistribution)(low, high, log=0 < 10 * low < high)


def recipe_of_trial(name: str, words: dict[str, Any]) -> Recipe:
    """Return the recipe of a trial, from its name or its data."""
    return infer(name, words_of(words))[0] if is_data(name) else load(name, words_of(words))


def words_of(values: dict[str, Any]) -> list[str]:
    """Return values as `key=value` words; a sampled number has four digits, so that it can be typed again."""
    return [f"{key}={f'{value:.4g}' if isinstance(value, float) else value}" for key, value in values.items()]


def open_study(folder: Path, words: list[str]) -> optuna.Study:
    """Return the study that a folder stores; ValueError where its sweep is another one."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        storage=f"sqlite:///{folder / 'sweep.db'}", study_name="sweep", load_if_exists=True, direction="maximize"
    )
    if (saved := study.user_attrs.get("words", words)) != words:
        raise ValueError(f"{folder} holds the sweep of {shlex.join(saved)}, not of {shlex.join(words)}; change out=")
    study.set_user_attr("words", words)
    return study


def sample(study: optuna.Study, space: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return the values of the next trial, by its number, the seed and the trials before it alone."""
    copy = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed + len(study.trials)))
    copy.add_trials(study.trials)
    return copy.ask(space).params


def take(study: optuna.Study, number: int, name: str, words: dict[str, Any]) -> None:
    """Train a trial and store its metric, negative where lower is better; a failed trial ends no sweep."""
    command = shlex.join(["qkv", "train", name, *words_of(words)])
    say(f"trial {number + 1}: {command}")
    AcceleratorState._reset_state()  # it would hold the precision of the trial before
    try:
        recipe = recipe_of_trial(name, words)
        metrics = train(recipe, command, Clock(), complete).record["metrics"]["validation"]
        watched = (recipe.output.watch or "").removeprefix("validation ")
        metric = watched or next(one for one in RANKED_BY if one in metrics)
        study.set_user_attr("metric", metric)
        study.tell(number, metrics[metric] * (-1 if metric in LOWER_IS_BETTER else 1))
    except EXPECTED as error:
        say(f"trial {number + 1} failed: {' '.join(str(error).split())}")
        study.tell(number, state=TrialState.FAIL)


def show(study: optuna.Study, name: str, words: dict[str, Any], folder: Path) -> None:
    """Print the metrics of the trials, and the command of the best; RuntimeError where all failed."""
    ranked = sorted(study.trials, key=lambda trial: math.inf if trial.value is None else -trial.value)
    if ranked[0].value is None:
        raise RuntimeError(f"every trial of {folder} failed, each for the reason above; change the fields and out=")
    metric = study.user_attrs["metric"]
    sign = -1 if metric in LOWER_IS_BETTER else 1
    shown = ["failed" if trial.value is None else f"{sign * trial.value:.4f}" for trial in ranked]
    rows = [f"trial {trial.number + 1}: {' '.join(words_of(trial.params))}" for trial in ranked]
    print_table(f"{name}: validation {metric}, the best first", dict(zip(rows, shown, strict=True)))
    seed = int((words | ranked[0].params).get("seed", 0)) + 1
    again = words | ranked[0].params | {"seed": seed, "out": folder / f"best-seed-{seed}"}
    print("the best with another seed:", shlex.join(["qkv", "train", name, *words_of(again)]), sep="\n")
