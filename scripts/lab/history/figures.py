"""Draw the figures of a record."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from qkv.scripts.lab.history.models import ATTENTION, LEARNED, RNN, TRANSFORMER

Record = dict[str, Any]
# The style of each model in all figures.
STYLES = {
    RNN: {"color": "tab:orange", "marker": "o"},
    ATTENTION: {"color": "tab:green", "marker": "s"},
    TRANSFORMER: {"color": "tab:blue", "marker": "^"},
    LEARNED: {"color": "tab:cyan", "marker": "v"},
}


def draw_quality(record: Record, figure: Figure) -> None:
    """Draw the accuracy by source length, training lengths shaded, and the training losses."""
    left, right = figure.subplots(1, 2)
    lengths = record["size"]["training_lengths"]
    left.axvspan(min(lengths), max(lengths), color="0.92", label="training lengths")
    left.axhline(1 / record["letters"], color="0.5", linestyle=":", linewidth=1, label="chance")
    for name, curve in record["quality"].items():
        left.plot(*zip(*curve, strict=True), label=name, **STYLES[name])
        right.plot(*zip(*record["training"][name]["curve"], strict=True), label=name, **STYLES[name], markersize=4)
    left.set(xscale="log", xlabel="letters of the source", title="letters right, greedy decoding")
    right.set(xlabel="CPU seconds of training", title="training loss")


def draw_steps(record: Record, figure: Figure) -> None:
    """Draw the seconds of a training step by length, and their ratio to the Transformer's with its range."""
    left, right = figure.subplots(1, 2)
    lengths = record["steps"]["lengths"]
    for name, times in record["steps"]["models"].items():
        left.plot(lengths, times["seconds"], label=name, **STYLES[name])
        least, middle, most = zip(*times["over"], strict=True)
        right.plot(lengths, middle, label=name, **STYLES[name])
        right.fill_between(lengths, least, most, color=STYLES[name]["color"], alpha=0.2)
    right.axhline(10, color="0.5", linestyle=":", linewidth=1, label="ten times")
    left.set(xscale="log", yscale="log", xlabel="letters of a source", title="CPU seconds of a training step")
    right.set(xscale="log", yscale="log", xlabel="letters of a source", title="over the Transformer's")


def draw_gradients(record: Record, figure: Figure) -> None:
    """Draw gradient norms by distance, relative to the nearest, before and after training."""
    for axis, (when, models) in zip(figure.subplots(1, 2), record["gradients"].items(), strict=True):
        for name, curve in models.items():
            distances, norms = zip(*curve, strict=True)
            axis.plot(distances, [norm / norms[0] for norm in norms], label=name, **STYLES[name])
        axis.set(xscale="log", yscale="log", xlabel="distance in steps of a recurrence")
        axis.set_title(f"gradient, {when}, over that of the nearest")


def draw_layers(record: Record, figure: Figure) -> None:
    """Draw deviations of activations and norms of gradients by layer, with and without residuals and norms."""
    for axis, (what, title) in zip(
        figure.subplots(1, 2),
        {"deviation": "deviation of activations", "gradient": "gradient over the last layer's"}.items(),
        strict=True,
    ):
        for place, (name, by_layer) in enumerate(record["activations"].items()):
            half = len(record["activations"]) // 2
            style = {"color": f"C{place % half}", "linestyle": "-" if place < half else "--", "marker": "."}
            axis.plot(range(len(by_layer[what])), by_layer[what], label=name, **style)
        axis.set(yscale="log", xlabel="layer (0: the input)", title=title)


def draw_lengths(record: Record, figure: Figure) -> None:
    """Draw seconds and peak memory of a training step by length, and with dashes those of a forward pass."""
    axes, units = figure.subplots(1, 2), {"seconds": 1, "bytes": 2**20}
    for axis, (unit, divisor) in zip(axes, units.items(), strict=True):
        for place, (name, curves) in enumerate(record["lengths"]["stacks"].items()):
            for what, line in (("step", "-"), ("forward", "--")):
                lengths, values = zip(*curves[f"{what}_{unit}"], strict=True)
                style = {"color": f"C{place}", "linestyle": line, "label": name if what == "step" else ""}
                axis.plot(lengths, [value / divisor for value in values], marker=".", **style)
        axis.set(xscale="log", yscale="log", xlabel="tokens of a text")
        axis.set_xticks(ticks := record["size"]["stack_lengths"], [f"{tick:,}" for tick in ticks], fontsize=8)
        axis.minorticks_off()
    axes[0].set_title("CPU seconds of a training step (dashed: forward)")
    axes[1].set_title("peak memory of the same, MiB")


FIGURES: dict[str, Callable[[Record, Figure], None]] = {
    "quality.png": draw_quality,
    "steps.png": draw_steps,
    "gradients.png": draw_gradients,
    "activations.png": draw_layers,
    "lengths.png": draw_lengths,
}


def draw(record: Record, folder: Path) -> None:
    """Draw all figures into a folder."""
    for name, picture in FIGURES.items():
        figure = Figure(figsize=(11, 4), layout="constrained")
        picture(record, figure)
        labels: dict[str, Any] = {}
        for axis in figure.axes:
            axis.grid(alpha=0.3)
            labels |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
        figure.legend(list(labels.values()), list(labels), loc="outside right upper", fontsize=8)
        figure.savefig(folder / name, dpi=110)
