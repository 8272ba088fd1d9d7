"""Plot the loss curve of a training."""

from collections import Counter
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure


def draw_curve(lines: list[dict[str, Any]], path: Path) -> None:
    """Plot losses by step, and every other metric that was logged more than once, from a run's metrics."""
    trained = [line for line in lines if "split" not in line]
    evaluated = [line for line in lines if "split" in line]
    taken = Counter((line["split"], name) for line in evaluated for name in line)
    names = sorted({name for (_, name), count in taken.items() if count > 1} - {"step", "split", "loss"})
    figure = Figure(figsize=(5 * (1 + len(names)), 3.5), layout="constrained")
    axes = figure.subplots(1, 1 + len(names), squeeze=False)
    axes[0, 0].plot(*columns(trained, "loss"), label="train", linewidth=1)
    axes[0, 0].set_yscale("log")
    for axis, name in zip(axes[0], ["loss", *names], strict=True):
        for split in sorted({line["split"] for line in evaluated}):
            axis.plot(*columns([line for line in evaluated if line["split"] == split], name), label=split, marker=".")
        axis.set(xlabel="step", title=name)
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=150)


def columns(lines: list[dict[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """Return the steps and values of one metric."""
    return [line["step"] for line in lines], [line[name] for line in lines]
