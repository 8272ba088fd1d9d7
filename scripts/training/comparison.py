"""Train a recipe and its stock model from several seeds, with nothing else different."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qkv.scripts.recipes.loading import load
from qkv.scripts.training.record import Clock
from qkv.scripts.training.run import Run, train

# Fields of the recipe that each model changes.
MODELS: Mapping[str, Sequence[str]] = {"qkv": (), "stock": ("model_source=stock",)}


def compare(
    recipe: str, overrides: Sequence[str], also: Mapping[str, Sequence[str]], seeds: Sequence[int], folder: Path,
    command: str,
) -> Run:  # fmt: skip
    """Train each model from each seed in `folder`/MODEL-SEED, and return our run of the first seed.

    `also` names further models by the fields of the recipe that they change. The record of the returned run holds the
    results of all. What is finished is not trained again, so runs may be made beforehand, several at a time, by
    `qkv train`.
    """
    models = {**MODELS, **also}
    records: dict[str, list[dict[str, Any]]] = {name: [] for name in models}
    # Ours is last, so that it is at hand when all are done.
    for name in reversed(models):
        for seed in reversed(seeds):
            place = [f"seed={seed}", f"out={folder / f'{name}-{seed}'}"]
            run = train(load(recipe, [*overrides, *models[name], *place]), command, Clock())
            records[name].insert(0, run.record)
    run.record["comparison"] = {
        "seeds": list(seeds),
        "models": {name: results(of_model) for name, of_model in records.items()},
    }
    return run


def results(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the results of one model, a value for each seed."""
    first = records[0]
    return {
        "architecture": first["recipe"]["architecture"],
        "parameters": first["parameters"],
        "training_cpu_s": [record["time"]["training_cpu_s"] for record in records],
        "metrics": {
            split: {name: [record["metrics"][split][name] for record in records] for name in metrics}
            for split, metrics in first["metrics"].items()
        },
        "commits": [record["commit"] for record in records],
    }
