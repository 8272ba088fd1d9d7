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

NAMED = 40  # labels of an axis; of more every second or third one is written
INCHES = 4.6  # of a matrix


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
            draw_picture(left, weights[0], stack.queries, stack.keys)
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
    axis.imshow(weights, cmap="magma", vmin=0.0, aspect="auto", interpolation="nearest")
    for side, positions, angle in ((axis.yaxis, queries, 0), (axis.xaxis, keys, 90)):
        places = range(0, len(positions), max(1, -(-len(positions) // NAMED)))
        names = [escaped(positions.labels[place]) for place in places]
        side.set_ticks(list(places), names, fontsize=7, rotation=angle)


def draw_picture(axis: Any, row: Weights, queries: Positions, keys: Positions) -> None:
    """Draw a picture under the weights (S) of the first query, which is framed where it is an object."""
    rows, columns = keys.grid or (1, 1)
    pixels = image.imread(io.BytesIO(keys.picture or b""), format="png")
    grey = pixels if pixels.ndim == 2 else pixels[..., :3].mean(-1)
    axis.imshow(grey, cmap="gray", extent=(0, 1, 1, 0), vmin=-0.3)
    weights = row[keys.prefix : keys.prefix + rows * columns].reshape(rows, columns)
    axis.imshow(weights, cmap="magma", vmin=0.0, alpha=0.6, extent=(0, 1, 1, 0), interpolation="nearest")
    axis.set_aspect(grey.shape[0] / grey.shape[1])
    axis.set_axis_off()
    if queries.boxes:
        left, top, width, height = queries.boxes[0]
        axis.add_patch(Rectangle((left, top), width, height, fill=False, edgecolor="white", linewidth=2))


def draw_entropy(axis: Any, stack: Stack) -> None:
    """Draw the entropy of every layer and head in bits."""
    colours = axis.imshow(stack.entropy, cmap="viridis", aspect="auto", vmin=0.0)
    axis.set_yticks(range(len(stack.layers)), [str(number) for number in stack.layers], fontsize=7)
    axis.set(xlabel="head", ylabel="layer")
    axis.set_xticks(np.arange(stack.entropy.shape[1]), [str(number) for number in stack.heads], fontsize=7)
    axis.set_title("entropy in bits", fontsize=9)
    axis.figure.colorbar(colours, ax=axis)
