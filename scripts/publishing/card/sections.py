"""Make the sections of a card from the record of a training, and list what was not measured."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from qkv.configuration import presets
from qkv.scripts.common.environment import public_command
from qkv.scripts.common.tables import SECONDS, format_metric, format_range, markdown_table
from qkv.scripts.recipes.schema import GROUPS

Record = dict[str, Any]
# Recipe fields that stand elsewhere on the card.
ELSEWHERE = ("name", "title", "model", "architecture", "limits", "out", "data", "preset")
ORDINARY = ("train", "validation", "test")
# What a reader wants to know of any model -> whether the record lacks it.
GAPS: Mapping[str, Callable[[Record], bool]] = {
    "how much another seed changes the figures": lambda record: len(seeds(record)) < 2,
    "data from elsewhere, noisy or hostile: every figure is on splits of one data set": lambda record: (
        not (set(record["metrics"]) - set(ORDINARY))
    ),
    "calibration: whether confidence means anything": lambda record: not metric(record, "ece", "brier"),
    "fairness: figures by group of people": lambda record: not any("group" in name for name in record["metrics"]),
    "other models on the same data": lambda record: not (record.get("baselines") or record.get("comparison")),
    "energy": lambda record: not record.get("energy"),
    "speed and memory in use": lambda record: not metric(record, "examples_per_second"),
    "a GPU": lambda record: record["device"]["type"] != "cuda",
    "hardware other than {hardware}": lambda record: True,
    "precisions other than {precision}": lambda record: True,
}


def metric(record: Record, *names: str) -> bool:
    """Return whether any split has one of these metrics."""
    return any(name in metrics for metrics in record["metrics"].values() for name in names)


def seeds(record: Record) -> list[int]:
    """Return the seeds of the runs."""
    known: list[int] = record.get("comparison", {}).get("seeds", [record["seed"]])
    return known


def kept(record: Record) -> str:
    """Return which step's weights were evaluated."""
    watched = record["recipe"].get("watch")
    if not watched:
        return "On the weights of the last step, never the best of several"
    steps = record["steps"]
    return f"On the weights of step {steps['kept']:,} of {steps['taken']:,}, the best by {watched}"


def results(name: str, record: Record) -> str:
    """Return the metrics of the model and of the baselines, a table for each split."""
    tables = []
    for split, metrics in record["metrics"].items():
        header = (f"{split} split, n = {record['data']['sizes'][split]:,}", *metrics)
        rows = [(name, *(format_metric(metric, value) for metric, value in metrics.items()))]
        for other, scores in record.get("baselines", {}).items():
            rows.append((other, *(format_metric(metric, scores.get(split, {}).get(metric)) for metric in metrics)))
        tables.append(markdown_table(header, rows))
    return "\n\n".join(tables)


def comparison(record: Record) -> str:
    """Return the comparison with the stock model over all seeds, a table for each split."""
    models = record.get("comparison", {}).get("models", {})
    tables = []
    for split in record["metrics"] if models else ():
        metrics = list(record["metrics"][split])
        rows = [
            (
                f"`{model['architecture']}`" + f", {name}" * (name not in ("qkv", "stock")),
                f"{model['parameters']:,}",
                format_range(SECONDS, model["training_cpu_s"]),
                *(format_range(metric, model["metrics"][split][metric]) for metric in metrics),
            )
            for name, model in models.items()
        ]
        tables.append(markdown_table((f"{split} split", "parameters", "CPU seconds of training", *metrics), rows))
    return "\n\n".join(tables)


def pictures(record: Record) -> str:
    """Return the pictures beside the card."""
    return "\n\n".join(f"![{caption}]({name})\n\n*{caption}.*" for name, caption in record.get("pictures", {}).items())


def facts(record: Record) -> str:
    """Return hardware, software, data and time of the training."""
    time, task, data = record["time"], record["task"], record["data"]
    known = {split: "streamed" if size is None else f"{size:,}" for split, size in data["sizes"].items()}
    sizes = ", ".join(f"{size} {split}" for split, size in known.items())
    rows = {
        "command": f"`{published(record['command'])}`",
        "commit": record["commit"] or "unknown",
        "versions": ", ".join(f"{name} {version}" for name, version in record["versions"].items()),
        "seed": str(record["seed"]),
        "data": (f"[{task['title']}]({task['source']})" if task["source"] else task["title"]) + f", {sizes}",
        "data, SHA-256": f"`{data['sha256']}`",
        "optimizer steps": f"{record.get('steps', {}).get('taken', record['recipe']['max_steps']):,}",
        "hardware": hardware(record["device"]),
        "time": f"{time['training_wall_s']:.0f} s wall, {time['training_cpu_s']:.0f} s CPU, of the training alone",
        "energy": energy(record.get("energy")),
    }
    return markdown_table(("", ""), rows.items())


def hardware(device: Record) -> str:
    """Return the hardware of the training."""
    units = {"processor": "", "cores": " cores", "memory_gib": " GiB of memory"}
    machine = [f"{device[name]}{unit}" for name, unit in units.items() if device.get(name)]
    return (
        f"{device['processes']} x {device['type']} ({device['name']}), {device['threads']} thread(s) each"
        + f"; {', '.join(machine)}" * bool(machine)
    )


def energy(measured: Record | None) -> str:
    """Return the energy that hardware counters measured; never an estimate."""
    if not measured:
        return "not measured"
    counted = ", ".join(measured["counters"])
    return f"{measured['training_j']:,.0f} J in training, as {counted} count it, whatever else the machine did included"


def published(command: str) -> str:
    """Return a command without the paths of a machine."""
    return public_command(shlex.join(word for word in shlex.split(command) if not word.startswith("out=")))


def settings(recipe: Record) -> str:
    """Return the recipe's fields that the card does not show elsewhere, spelt as on the command line.

    A group of defaults is left out.
    """
    usual = {name: asdict(group()) for name, group in GROUPS.items()}
    rows: list[tuple[str, str]] = []
    for name, value in recipe.items():
        if name in ELSEWHERE or value is None or value == {} or value == usual.get(name):
            continue
        inner = {f"{name}.{key}": part for key, part in value.items()} if isinstance(value, dict) else {name: value}
        rows += [(key, str(part)) for key, part in inner.items() if part is not None]
    return markdown_table(("setting", "value"), rows)


def gaps(record: Record) -> str:
    """Return what was not measured."""
    device = record["device"]
    measured = {"precision": record["recipe"]["precision"], "hardware": f"{device['type']} ({device['name']})"}
    return "\n".join(f"- {words.format(**measured)}" for words, missing in GAPS.items() if missing(record))


def citation(recipe: Record) -> str:
    """Return the paper of the recipe's preset."""
    preset = recipe.get("preset")
    if preset is None:
        return ""
    if preset not in presets.names():
        raise ValueError(f"the record's recipe.preset={preset!r} is not one of {', '.join(presets.names())}")
    return " ".join(getattr(presets, preset).__doc__.split())
