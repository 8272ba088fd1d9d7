"""Compare runs: a line for each, with the fields in which its recipe differs from the others of its name."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from qkv.scripts.common.run_folder import FREE
from qkv.scripts.common.tables import format_metric
from qkv.scripts.runs.reading import Run

# Fields that change no result, or say which recipe it is.
ASIDE = {*FREE, "name"}


def lines(runs: Sequence[Run]) -> list[dict[str, str]]:
    """Return the cells of each run by column."""
    fields = differences(runs)
    return [
        {
            "run": "\n".join([str(run.folder), *fields[index]]),
            "steps": steps(run),
            **{split: result(run.metrics.get(split, {})) for split in ("validation", "test")},
            "min": minutes(run),
        }
        for index, run in enumerate(runs)
    ]


def steps(run: Run) -> str:
    """Return the steps of a run, of all where they are known, and that it is not finished."""
    total = run.recipe.get("max_steps")
    if run.state == "finished":
        return str(run.step)
    return f"{run.state} {run.step}" + (f"/{total}" if total else "")


def main_metric(metrics: dict[str, float]) -> str | None:
    """Return the metric that a split is judged by: its first, or the loss where it has no other."""
    return next((name for name in metrics if name != "loss"), next(iter(metrics), None))


def result(metrics: dict[str, float]) -> str:
    """Return the first metric of a split with its name."""
    name = main_metric(metrics)
    return f"{name} {format_metric(name, metrics[name])}" if name else ""


def minutes(run: Run) -> str:
    """Return the minutes of a training that is finished."""
    return f"{run.record['time']['training_wall_s'] / 60:.1f}" if run.record else ""


def differences(runs: Sequence[Run]) -> list[list[str]]:
    """Return for each run `key=value` of all fields in which runs of the same recipe differ."""
    flat = [flattened(run.recipe) for run in runs]
    groups: dict[str, list[int]] = defaultdict(list)
    for index, run in enumerate(runs):
        if run.recipe:
            groups[run.recipe.get("name", "")].append(index)
    told: list[list[str]] = [[] for _ in runs]
    for members in groups.values():
        for key in dict.fromkeys(key for index in members for key in flat[index]):
            values = {index: flat[index][key] for index in members if key in flat[index]}
            if len(values) < len(members) or any(value != values[members[0]] for value in values.values()):
                for index, value in values.items():
                    told[index].append(f"{key}={value}")
    return told


def flattened(fields: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested fields under the keys that are typed, without those that change no result."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict) and name not in ASIDE:
            flat |= flattened(value, f"{prefix}{name}.")
        elif name not in ASIDE or prefix:
            flat[prefix + name] = value
    return flat
