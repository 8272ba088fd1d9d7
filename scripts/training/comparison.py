"""Is it better than the stock model? The same recipe trains both, from several seeds, and nothing else differs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qkv.scripts.training.recipe import load
from qkv.scripts.training.run import Run, train

# What is compared, by the recipe's `model_source`; ours is last, so that it is at hand when all are done.
SOURCES = ("stock", "qkv")


def compare(recipe: str, overrides: Sequence[str], seeds: Sequence[int], folder: Path, command: str) -> Run:
    """Train each source from each seed in `folder`/SOURCE-SEED, and return our run of the first seed.

    Its record then holds the figures of all. What is finished is not trained again, so runs may also be made
    beforehand, several at a time, by `qkv train`.
    """
    records: dict[str, list[dict[str, Any]]] = {source: [] for source in SOURCES}
    for source in SOURCES:
        for seed in reversed(seeds):
            words = [*overrides, f"model_source={source}", f"seed={seed}", f"out={folder / f'{source}-{seed}'}"]
            run = train(load(recipe, words), command)
            records[source].insert(0, run.record)
    run.record["comparison"] = {
        "seeds": list(seeds),
        "models": {source: gathered(records[source]) for source in reversed(SOURCES)},
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
