"""Is it better than the stock model? The same recipe trains both, from several seeds, and nothing else differs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qkv.scripts.recipes.schema import load
from qkv.scripts.training.record import Clock
from qkv.scripts.training.run import Run, train

# What makes the recipe train the one or the other.
OURS, STOCK = "qkv", "stock"
SOURCES: Mapping[str, Sequence[str]] = {OURS: (), STOCK: ("model_source=stock",)}


def compare(
    recipe: str, overrides: Sequence[str], also: Mapping[str, Sequence[str]], seeds: Sequence[int], folder: Path,
    command: str,
) -> Run:  # fmt: skip
    """Train each model from each seed in `folder`/MODEL-SEED, and return our run of the first seed.

    `also` names further models by what they change about the recipe. The record of the returned run holds the figures
    of all. What is finished is not trained again, so runs may be made beforehand, several at a time, by `qkv train`.
    """
    models = {**SOURCES, **also}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in models}
    # Ours is last, so that it is at hand when all are done.
    for name in reversed(models):
        for seed in reversed(seeds):
            place = [f"seed={seed}", f"out={folder / f'{name}-{seed}'}"]
            run = train(load(recipe, [*overrides, *models[name], *place]), command, Clock())
            found[name].insert(0, run.record)
    run.record["comparison"] = {
        "seeds": list(seeds),
        "models": {name: gathered(records) for name, records in found.items()},
    }
    return run


def gathered(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the records of one model say, a value for each seed."""
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
