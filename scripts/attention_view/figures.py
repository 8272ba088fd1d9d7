"""Draw attention with matplotlib: matrices with names of tokens, pictures under a query, entropy by layer and head."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import image
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from qkv.scripts.attention_view.positions import Positions
from qkv.scripts.attention_view.stacks import Stack, Weights

NAMED, TIMES = 40, 8  # labels of an axis, and of one of times; of more every second or third one is written
INCHES = 4.6  # of a matrix
COLOURS, OPACITY = "magma", 0.6  # of weights, and over a picture


def draw_view(title: str, stacks: Sequence[Stack], form: str) -> bytes:
    """Return a figure of stacks as PNG or SVG, of each the last layer, mean over heads, and the entropy of all heads.

    A picture is shown under the first query: the class token, or the object of the highest score.
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


def draw_matrix(axis: Any, weights: Weights, queries: Positions, keys: Positions) -> None:
    """Draw weights (T, S) with the names of queries and keys."""
    axis.imshow(weights, cmap=COLOURS, vmin=0.0, aspect="auto", interpolation="nearest")
    for side, positions in ((axis.yaxis, queries), (axis.xaxis, keys)):
        most = TIMES if positions.kind == "frames" else NAMED
        places = list(range(0, len(positions), max(1, -(-len(positions) // most))))
        space = "\N{OPEN BOX}" if positions.kind == "tokens" else " "
        labels = [escaped(positions.labels[place].replace(" ", space)) for place in places]
        is_upright = side is axis.xaxis and positions.kind != "frames"
        side.set_ticks(places, labels, fontsize=7, rotation=90 if is_upright else 0)


def draw_entropy(axis: Any, stack: Stack) -> None:
    """Draw the entropy of every layer and head in bits."""
    colours = axis.imshow(stack.entropy, cmap="viridis", aspect="auto", vmin=0.0)
    axis.set_yticks(range(len(stack.layers)), [str(number) for number in stack.layers], fontsize=7)
    axis.set(xlabel="head", ylabel="layer")
    axis.set_xticks(np.arange(stack.entropy.shape[1]), [str(number) for number in stack.heads], fontsize=7)
    axis.set_title("entropy in bits", fontsize=9)
    axis.figure.colorbar(colours, ax=axis)


def draw_image(axis: Any, keys: Positions, extent: Sequence[float] = (0, 1, 1, 0), *, is_grey: bool = False) -> None:
    """Draw the picture of positions."""
    pixels = image.imread(io.BytesIO(keys.picture or b""), format="png")
    pixels = pixels[..., :3].mean(-1) if is_grey and pixels.ndim == 3 else pixels
    axis.imshow(pixels, cmap="gray", vmin=-0.3 if is_grey else None, extent=extent, interpolation="nearest")
    axis.set_aspect(pixels.shape[0] / pixels.shape[1] if keys.kind == "patches" else "auto")
    axis.set_axis_off()


def draw_map(axis: Any, row: Weights, keys: Positions) -> None:
    """Draw the picture of the keys in grey under the weights (S) of one query."""
    rows, columns = keys.grid or (1, 1)
    draw_image(axis, keys, is_grey=True)
    weights = row[keys.prefix : keys.prefix + rows * columns].reshape(rows, columns)
    shape = axis.get_aspect()
    axis.imshow(weights, cmap=COLOURS, vmin=0.0, alpha=OPACITY, extent=(0, 1, 1, 0), interpolation="nearest")
    axis.set_aspect(shape)


def frame(axis: Any, box: Sequence[float], colour: str) -> None:
    """Draw the outline of a box (left, top, width, height) over a picture."""
    axis.add_patch(Rectangle((box[0], box[1]), box[2], box[3], fill=False, edgecolor=colour, linewidth=2))
