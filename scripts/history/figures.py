"""How does the comparison look? Four pictures of one record."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from qkv.scripts.history.contenders import ATTENTION, LEARNED, RNN, TRANSFORMER

Record = dict[str, Any]
# One look for each model in all pictures.
STYLES = {
    RNN: {"color": "tab:orange", "marker": "o"},
    ATTENTION: {"color": "tab:green", "marker": "s"},
    TRANSFORMER: {"color": "tab:blue", "marker": "^"},
    LEARNED: {"color": "tab:cyan", "marker": "v"},
}


def draw_quality(record: Record, figure: Figure) -> None:
    """Letters right by length of the source, lengths of the lessons shaded; and the losses of the lessons."""
    left, right = figure.subplots(1, 2)
    lessons = record["size"]["lessons"]
    left.axvspan(min(lessons), max(lessons), color="0.92", label="lengths of the lessons")
    left.axhline(1 / record["letters"], color="0.5", linestyle=":", linewidth=1, label="chance")
    for name, curve in record["quality"].items():
        left.plot(*zip(*curve, strict=True), label=name, **STYLES[name])
        right.plot(*zip(*record["learning"][name]["curve"], strict=True), label=name, **STYLES[name], markersize=4)
    left.set(xscale="log", xlabel="letters of the source", title="letters right, written freely")
    right.set(xlabel="CPU seconds of training", title="loss of the lessons")


def draw_steps(record: Record, figure: Figure) -> None:
    """Seconds of a training step by length, about as many letters each; and over the Transformer's, with its range."""
    left, right = figure.subplots(1, 2)
    lengths = record["steps"]["lengths"]
    for name, found in record["steps"]["models"].items():
        left.plot(lengths, found["seconds"], label=name, **STYLES[name])
        least, middle, most = zip(*found["over"], strict=True)
        right.plot(lengths, middle, label=name, **STYLES[name])
        right.fill_between(lengths, least, most, color=STYLES[name]["color"], alpha=0.2)
    right.axhline(10, color="0.5", linestyle=":", linewidth=1, label="ten times")
    left.set(xscale="log", yscale="log", xlabel="letters of a source", title="CPU seconds of a training step")
    right.set(xscale="log", yscale="log", xlabel="letters of a source", title="over the Transformer's")


def draw_gradients(record: Record, figure: Figure) -> None:
    """Gradient norms by distance, over that at the nearest: before training, and after it."""
    for axis, (when, models) in zip(figure.subplots(1, 2), record["gradients"].items(), strict=True):
        for name, curve in models.items():
            distances, norms = zip(*curve, strict=True)
            axis.plot(distances, [norm / norms[0] for norm in norms], label=name, **STYLES[name])
        axis.set(xscale="log", yscale="log", xlabel="distance in steps of a recurrence")
        axis.set_title(f"gradient, {when}, over that of the nearest")


def draw_layers(record: Record, figure: Figure) -> None:
    """Deviations of activations and norms of gradients, layer by layer, with and without residual sums and norms."""
    for axis, (what, title) in zip(
        figure.subplots(1, 2),
        {"deviation": "deviation of activations", "gradient": "gradient over the last layer's"}.items(),
        strict=True,
    ):
        for place, (name, found) in enumerate(record["activations"].items()):
            half = len(record["activations"]) // 2
            style = {"color": f"C{place % half}", "linestyle": "-" if place < half else "--", "marker": "."}
            axis.plot(range(len(found[what])), found[what], label=name, **style)
        axis.set(yscale="log", xlabel="layer (0: the input)", title=title)


PICTURES: dict[str, Callable[[Record, Figure], None]] = {
    "quality.png": draw_quality,
    "steps.png": draw_steps,
    "gradients.png": draw_gradients,
    "activations.png": draw_layers,
}


def draw(record: Record, folder: Path) -> None:
    """Draw all pictures into a folder."""
    for name, picture in PICTURES.items():
        figure = Figure(figsize=(11, 4), layout="constrained")
        picture(record, figure)
        labels: dict[str, Any] = {}
        for axis in figure.axes:
            axis.grid(alpha=0.3)
            labels |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
        figure.legend(list(labels.values()), list(labels), loc="outside right upper", fontsize=8)
        figure.savefig(folder / name, dpi=110)
