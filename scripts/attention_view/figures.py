"""Draw attention with matplotlib: matrices with names of tokens, pictures under a query, entropy by layer and head."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import image
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from qkv.scripts.attention_view.positions import Positions, shortened
from qkv.scripts.attention_view.stacks import Stack, Weights

NAMED, TIMES = 40, 8  # labels of an axis, and of one of times; of more every second or third one is written
INCHES = 4.6  # of a matrix
COLOURS, OPACITY = "magma", 0.6  # of weights, and over a picture


def draw_view(title: str, stacks: Sequence[Stack], form: str) -> bytes:
    """Return a figure as PNG or SVG: the last layer of each stack, mean over heads, and the entropy of all heads."""
    figure = Figure(figsize=(2 * INCHES + 1.2, (INCHES + 0.6) * len(stacks)), layout="constrained")
    figure.suptitle(escaped(title), fontsize=10)
    axes = figure.subplots(len(stacks), 2, squeeze=False, width_ratios=(1.5, 1))
    for stack, (left, right) in zip(stacks, axes, strict=True):
        draw_stack(left, stack, f"{stack.name}, layer {stack.layers[-1]}, mean over heads")
        draw_entropy(right, stack)
    content = io.BytesIO()
    figure.savefig(content, format=form, dpi=150)
    return content.getvalue()


def draw_stack(axis: Any, stack: Stack, title: str) -> None:
    """Draw the last layer, mean over heads: a matrix, or a picture under a query.

    That is the class token, the object of the highest score with its box, or else the mean of all patches.
    """
    weights = stack.weights[-1].mean(0)
    if stack.keys.grid is None or stack.keys.picture is None:
        draw_matrix(axis, weights, stack.queries, stack.keys)
    else:
        is_mean = stack.queries.kind == "patches" and not stack.queries.prefix
        title = f"{title}, {'mean of all queries' if is_mean else f'query {stack.queries.labels[0]}'}"
        draw_map(axis, weights.mean(0) if is_mean else weights[0], stack.keys)
        for left, top, width, height in (stack.queries.boxes or [])[:1]:
            axis.add_patch(Rectangle((left, top), width, height, fill=False, edgecolor="white", linewidth=2))
    axis.set_title(escaped(shortened(title)), fontsize=9, wrap=True)


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


def draw_map(axis: Any, row: Weights, keys: Positions) -> None:
    """Draw the picture of the keys in grey under the weights (S) of one query."""
    rows, columns = keys.grid or (1, 1)
    pixels = image.imread(io.BytesIO(keys.picture or b""), format="png")
    grey = pixels[..., :3].mean(-1) if pixels.ndim == 3 else pixels
    whole: Any = {"extent": (0, 1, 1, 0), "interpolation": "nearest"}
    axis.imshow(grey, cmap="gray", vmin=-0.3, **whole)
    weights = row[keys.prefix : keys.prefix + rows * columns].reshape(rows, columns)
    axis.imshow(weights, cmap=COLOURS, vmin=0.0, alpha=OPACITY, **whole)
    axis.set_aspect(grey.shape[0] / grey.shape[1])
    axis.set_axis_off()


def draw_entropy(axis: Any, stack: Stack) -> None:
    """Draw the entropy of every layer and head in bits."""
    colours = axis.imshow(stack.entropy, cmap="viridis", aspect="auto", vmin=0.0)
    axis.set_yticks(range(len(stack.layers)), [str(number) for number in stack.layers], fontsize=7)
    axis.set(xlabel="head", ylabel="layer")
    axis.set_xticks(np.arange(stack.entropy.shape[1]), [str(number) for number in stack.heads], fontsize=7)
    axis.set_title("entropy in bits", fontsize=9)
    axis.figure.colorbar(colours, ax=axis)
