"""Train a recipe with several values of its fields, chosen by optuna, and rank the trials."""

import math
import os
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
from optuna.trial import TrialState

from qkv.scripts.cli import EXPECTED
from qkv.scripts.common.files import FULL
from qkv.scripts.common.phases import say
from qkv.scripts.common.tables import print_table
from qkv.scripts.data.inference.own_recipe import infer, recipe_of
from qkv.scripts.recipes.fields.aliases import fields_of
from qkv.scripts.recipes.fields.keys import recipe_fields
from qkv.scripts.recipes.loading import TEXTS, is_data, load
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.train import complete
from qkv.scripts.training.early_stopping import LOWER_IS_BETTER
from qkv.scripts.training.record import Clock
from qkv.scripts.training.resume import FREE, LOCK, lock_training
from qkv.scripts.training.run import load_task, train

TRIALS = 20
# Metrics that rank the trials of a recipe without `watch`: the first that its task measures.
RANKED_BY = ("accuracy", "ap", "wer", "bleu", "exact_match", "retrieval_seen", "rmse", "loss")
SINGLE = {*TEXTS, "data", "name", "out", "tracker"}  # fields whose values may have commas
NUMBER = r"([-+]?\d*\.?\d+(?:e[-+]?\d+)?)"


def run(arguments: Namespace) -> None:
    """Train the missing trials, and print all trials, the best first."""
    name, words = arguments.recipe, dict(word.partition("=")[::2] for word in arguments.overrides)
    space = {key: kind for key, value in words.items() if (kind := distribution(key, value))}
    if not space:
        raise ValueError("a sweep needs a list or a range of values, such as learning_rate=1e-4..1e-2")
    values = {key: getattr(kind, "choices", None) or (kind.low, kind.high) for key, kind in space.items()}
    recipe = checked(name, words, values)
    is_grid = arguments.trials is None and all(isinstance(kind, CategoricalDistribution) for kind in space.values())
    grid = [dict(zip(values, row, strict=True)) for row in product(*values.values())] if is_grid else []
    typed = [name, *sorted(f"{key}={words[key]}" for key in words.keys() - FREE)]
    folder = Path(recipe.output.folder or f"runs/{recipe.name}-sweep-{datetime.now():%Y%m%d-%H%M%S}")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a") as file:
        lock_training(file, folder)
        study = open_study(folder, typed)
        for row in grid[len(study.trials) :]:
            study.enqueue_trial(row)
        for number in range(len(grid) or arguments.trials or TRIALS):
            # Of the state of a sampler, which a kill would lose, only the seed counts.
            study.sampler = optuna.samplers.TPESampler(seed=recipe.seed + number)
            if number == len(study.trials) or study.trials[number].state == TrialState.WAITING:
                study.ask(space)
            trial = study.trials[number]
            if not trial.state.is_finished():  # new, or killed
                take(study, number, name, words | trial.params | {"out": folder / f"trial-{number + 1:03}"})
    show(study, f"{name}: validation")


def checked(name: str, words: dict[str, str], values: dict[str, Any]) -> Recipe:
    """Return the recipe with the first values; ValueError for a mistake in any value, or without a validation split."""
    first = words | {key: choices[0] for key, choices in values.items()}
    recipe = recipe_of(name, words_of(first))
    for key, value in [(key, value) for key, choices in values.items() for value in choices[1:]]:
        recipe_of_trial(name, first | {key: value})
    if not recipe.data.holdout and "validation" not in load_task(recipe).splits:
        raise ValueError(f"{recipe.name} has no validation split, and the test split ranks nothing; add holdout=0.1")
    return recipe


def distribution(key: str, value: str) -> Any:
    """Return optuna's distribution of a list or a range; None for a single value."""
    field = fields_of(key)[0]
    if field in SINGLE or value.startswith(("[", "{", "'", '"')):
        return None
    if not (match := re.fullmatch(rf"{NUMBER}\.\.{NUMBER}", value)):
        return CategoricalDistribution(list(dict.fromkeys(value.split(",")))) if "," in value else None
    known = recipe_fields().get(field)
    is_whole = value.replace("..", "").isdigit() and (known is None or "int" in str(known.kind))
    low, high = map(float, match.groups())
    if low >= high:
        raise ValueError(f"{key}={value} is an empty range; write the smaller number first")
    log = 0 < 10 * low < high
    return IntDistribution(int(low), int(high), log=log) if is_whole else FloatDistribution(low, high, log=log)


def recipe_of_trial(name: str, words: dict[str, Any]) -> Recipe:
    """Return the recipe of a trial, from its name or its data."""
    return infer(name, words_of(words))[0] if is_data(name) else load(name, words_of(words))


def words_of(values: dict[str, Any]) -> list[str]:
    """Return values as `key=value` words; a sampled number has four digits, so that it can be typed again."""
    return [f"{key}={f'{value:.4g}' if isinstance(value, float) else value}" for key, value in values.items()]


def open_study(folder: Path, words: list[str]) -> optuna.Study:
    """Return the study that a folder stores; ValueError where its sweep is another one."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = f"sqlite:///{folder / 'sweep.db'}"
    study = optuna.create_study(storage=storage, study_name="sweep", load_if_exists=True, direction="maximize")
    if (saved := study.user_attrs.get("words", words)) != words:
        raise ValueError(f"{folder} holds the sweep of {shlex.join(saved)}, not of {shlex.join(words)}; change out=")
    study.set_user_attr("words", words)
    return study


def take(study: optuna.Study, number: int, name: str, words: dict[str, Any]) -> None:
    """Train a trial and store its metric, negative where lower is better; a failed trial does not end the sweep."""
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
        if any(os.strerror(number) in str(error) for number in FULL):  # which no other words mend
            raise
        say(f"trial {number + 1} failed: {' '.join(str(error).split())}")
        study.tell(number, state=TrialState.FAIL)


def show(study: optuna.Study, title: str) -> None:
    """Print the metrics of the trials, the best first; RuntimeError where all failed."""
    ranked = sorted(study.trials, key=lambda trial: math.inf if trial.value is None else -trial.value)
    if ranked[0].value is None:
        raise RuntimeError("every trial failed, each for the reason above; change the fields and out=")
    metric = study.user_attrs["metric"]
    sign = -1 if metric in LOWER_IS_BETTER else 1
    rows = {
        f"trial {trial.number + 1}: {' '.join(words_of(trial.params))}": (
            "failed" if trial.value is None else f"{sign * trial.value:.4f}"
        )
        for trial in ranked
    }
    print_table(f"{title} {metric}, the best first", rows)
