"""Train a recipe and other models on the same data, from several seeds: stock transformers', and named ones."""

from argparse import Namespace
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from qkv.scripts.common.phases import say
from qkv.scripts.common.tables import SECONDS, format_range, print_table
from qkv.scripts.lab.baselines import baselines
from qkv.scripts.lab.stock_model import build_stock, has_stock
from qkv.scripts.publishing.export.folder import README
from qkv.scripts.quickstart import complete
from qkv.scripts.recipes.loading import load
from qkv.scripts.training.record import Clock
from qkv.scripts.training.run import Run, build, train


def run(arguments: Namespace) -> None:
    """Train all, and print one table: means over the seeds, minimum and maximum."""
    arguments.seeds = list(dict.fromkeys(arguments.seeds))
    recipe = load(arguments.recipe, arguments.overrides)
    ours = compare(arguments, Path(recipe.output.folder or f"runs/{recipe.name}-{datetime.now():%Y%m%d-%H%M%S}"))
    if ours.is_main:
        ours.record["baselines"] = baselines(ours.task)
        rows = comparison_rows(ours.record["comparison"])
        if len(ours.record["comparison"]["models"]) == len(arguments.seeds) == 1:
            del ours.record["comparison"]  # of a run with itself
        complete(ours)
        print_table(f"{recipe.name}, seeds {', '.join(map(str, arguments.seeds))}", rows)
        print(f"the card: {ours.folder / README}")


def compare(arguments: Namespace, folder: Path) -> Run:
    """Train each model from each seed in `folder`/MODEL-SEED, and return our run of the first seed.

    The stock model is left out where transformers has no such head.
    `--also` names further models by the fields of the recipe that they change. The record of the returned run holds the
    results of all. What is finished is not trained again, so runs may be made beforehand, by `qkv train` or by another
    `compare` with one of the seeds.
    """
    stock = not arguments.no_stock and has_stock(load(arguments.recipe, arguments.overrides).model.architecture)
    # Fields of the recipe that each model changes.
    models: dict[str, list[str]] = {"qkv": []} | ({"stock": []} if stock else {})
    models |= {name: words for name, *words in arguments.also}
    records: dict[str, list[dict[str, Any]]] = {name: [] for name in models}
    # Ours is last, so that it is at hand when all are done.
    pairs = [(name, seed) for name in reversed(models) for seed in reversed(arguments.seeds)]
    for number, (name, seed) in enumerate(pairs, 1):
        out = folder / f"{name}-{seed}"
        say(f"{name}, seed {seed}: {number} of {len(pairs)} trainings, in {out}")
        recipe = load(arguments.recipe, [*arguments.overrides, *models[name], f"seed={seed}", f"out={out}"])
        run = train(recipe, arguments.words, Clock(), build=build_stock if name == "stock" else build)
        records[name].insert(0, run.record)
    each = {name: results(of_model) for name, of_model in records.items()}
    run.record["comparison"] = {"seeds": arguments.seeds, "models": each}
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
        **({"experts": first["experts"]} if "experts" in first else {}),
    }


def comparison_rows(comparison: dict[str, Any]) -> dict[str, str]:
    """Return the rows of a comparison: the metrics of each model over all seeds, its size and its cost."""
    models = comparison["models"]
    rows = {
        f"{split} {metric}, {source}": format_range(metric, model["metrics"][split][metric])
        for split in models["qkv"]["metrics"]
        for metric in models["qkv"]["metrics"][split]
        for source, model in models.items()
    }
    for source, model in models.items():
        rows[f"parameters, {source}"] = f"{model['parameters']:,}"
        rows[f"CPU seconds in training, {source}"] = format_range(SECONDS, model["training_cpu_s"])
    return rows
