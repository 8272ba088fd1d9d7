"""Draw attention with matplotlib: matrices with names of tokens, pictures under a query, entropy by layer and head."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import image
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from qkv.scripts.attention_view.positions import Positions, shortened
from qkv.scripts.attention_view.stacks import Stack, Weights

NAMED, TIMES = 40, 8  # labels of an axis, and of one of times; of more every second or third one is written
INCHES, SIDE = 4.6, 1.5  # of a matrix, and of a picture in a grid
COLOURS, OPACITY = "magma", 0.6  # of weights, and over a picture


def draw_view(title: str, stacks: Sequence[Stack], form: str) -> bytes:
    """Return a figure of stacks as PNG or SVG, of each the last layer, mean over heads, and the entropy of all heads.

    Of patches the picture is shown under the first query, the class token or the object of the highest score.
    """
    figure = Figure(figsize=(2 * INCHES + 1.2, (INCHES + 0.6) * len(stacks)), layout="constrained")
    figure.suptitle(escaped(title), fontsize=10)
    axes = figure.subplots(len(stacks), 2, squeeze=False, width_ratios=(1.5, 1))
    for stack, (left, right) in zip(stacks, axes, strict=True):
        weights, what = stack.weights[-1].mean(0), "mean over heads"
        if stack.keys.grid is not None and stack.keys.picture is not None:
            draw_map(left, weights[0], stack.keys)
            if stack.queries.boxes:
                frame(left, stack.queries.boxes[0], "white")
            what = escaped(f"{what}, query {stack.queries.labels[0]}")
        else:
            draw_matrix(left, weights, stack.queries, stack.keys)
        left.set_title(f"{stack.name}, layer {stack.layers[-1]}, {what}", fontsize=9)
        draw_entropy(right, stack)
    content = io.BytesIO()
    figure.savefig(content, format=form, dpi=150)
    return content.getvalue()


def escaped(text: str) -> str:
    """Return a text in which a dollar sign begins no formula."""
    return text.replace("$", r"\$")


def write_title(axis: Any, text: str, width: float = SIDE, colour: str = "black") -> None:
    """Write a text above axes of a width in inches, as much of it as there is room for."""
    axis.set_title(escaped(shortened(text, int(12 * width))), fontsize=9, color=colour)


def draw_matrix(axis: Any, weights: Weights, queries: Positions, keys: Positions) -> None:
    """Draw weights (T, S) with the names of queries and keys."""
    axis.imshow(weights, cmap=COLOURS, vmin=0.0, aspect="auto", interpolation="nearest")
    for side, positions in ((axis.yaxis, queries), (axis.xaxis, keys)):
        angle = 90 if side is axis.xaxis and positions.kind != "frames" else 0
        side.set_ticks(*ticks(positions), fontsize=7, rotation=angle)


def ticks(positions: Positions) -> tuple[list[int], list[str]]:
    """Return the places of an axis that are named, and their names, of tokens with spaces that can be seen."""
    most = TIMES if positions.kind == "frames" else NAMED
    places = list(range(0, len(positions), max(1, -(-len(positions) // most))))
    space = "\N{OPEN BOX}" if positions.kind == "tokens" else " "
    return places, [escaped(positions.labels[place].replace(" ", space)) for place in places]


def pixels_of(positions: Positions) -> Any:
    """Return the pixels of the picture of positions, from 0 to 1."""
    return image.imread(io.BytesIO(positions.picture or b""), format="png")


def draw_map(axis: Any, row: Weights, keys: Positions) -> None:
    """Draw the picture of the keys in grey under the weights (S) of one query."""
    rows, columns = keys.grid or (1, 1)
    pixels = pixels_of(keys)
    grey = pixels if pixels.ndim == 2 else pixels[..., :3].mean(-1)
    place = {"extent": (0, 1, 1, 0), "interpolation": "nearest"}
    axis.imshow(grey, cmap="gray", vmin=-0.3, **place)
    weights = row[keys.prefix : keys.prefix + rows * columns].reshape(rows, columns)
    axis.imshow(weights, cmap=COLOURS, vmin=0.0, alpha=OPACITY, **place)
    axis.set_aspect(grey.shape[0] / grey.shape[1])
    axis.set_axis_off()


def draw_image(axis: Any, positions: Positions) -> None:
    """Draw the picture of positions in its own colours."""
    pixels = pixels_of(positions)
    axis.imshow(pixels, cmap="gray", extent=(0, 1, 1, 0), interpolation="nearest")
    axis.set_aspect(pixels.shape[0] / pixels.shape[1])
    axis.set_axis_off()


def draw_spectrogram(axis: Any, frames: Positions) -> None:
    """Draw the spectrogram of frames over a matrix of which they are the columns."""
    place = (-0.5, len(frames) - 0.5, 0, 1)
    axis.imshow(pixels_of(frames), cmap="gray", aspect="auto", extent=place, interpolation="nearest")
    axis.tick_params(bottom=False, labelbottom=False)
    axis.set_yticks([])
    axis.set_ylabel("frequency", fontsize=8)


def frame(axis: Any, box: Sequence[float], colour: str) -> None:
    """Draw the outline of a box (left, top, width, height) over a picture."""
    left, top, width, height = box
    axis.add_patch(Rectangle((left, top), width, height, fill=False, edgecolor=colour, linewidth=2))


def draw_bars(axis: Any, row: Weights, keys: Positions) -> None:
    """Draw the weights (S) of one query over tokens as bars."""
    axis.barh(range(len(row)), row, color="C1")
    axis.set_yticks(range(len(row)), [escaped(label) for label in keys.labels], fontsize=7)
    axis.tick_params(axis="x", labelsize=7)
    axis.set_xlabel("attention weight", fontsize=7)
    axis.invert_yaxis()


def picture_grid(rows: int, columns: int, beside: Sequence[float] = ()) -> tuple[Figure, Any]:
    """Return a figure and its axes for rows of pictures; `beside` are the widths, in pictures, of more columns."""
    widths = [1.0] * columns + list(beside)
    figure = Figure(figsize=(SIDE * sum(widths) + 0.8, (SIDE + 0.25) * rows + 0.4), layout="constrained")
    return figure, figure.subplots(rows, len(widths), squeeze=False, width_ratios=widths)


def draw_scale(figure: Figure, axes: Any, opacity: float = 1.0) -> None:
    """Draw the scale of maps of which each spans 0 to its own largest weight."""
    bar = figure.colorbar(ScalarMappable(cmap=COLOURS), ax=axes, ticks=(0, 1), shrink=0.6, alpha=opacity)
    bar.ax.set_facecolor("gray")
    bar.ax.set_yticklabels(["0", "largest\nof a map"], fontsize=8)
    bar.set_label("attention weight", fontsize=8)


def draw_entropy(axis: Any, stack: Stack) -> None:
    """Draw the entropy of every layer and head in bits."""
    colours = axis.imshow(stack.entropy, cmap="viridis", aspect="auto", vmin=0.0)
    axis.set_yticks(range(len(stack.layers)), [str(number) for number in stack.layers], fontsize=7)
    axis.set(xlabel="head", ylabel="layer")
    axis.set_xticks(np.arange(stack.entropy.shape[1]), [str(number) for number in stack.heads], fontsize=7)
    axis.set_title("entropy in bits", fontsize=9)
    axis.figure.colorbar(colours, ax=axis)
