"""Draw attention with matplotlib: matrices with names of tokens, maps of patches, entropy by layer and head."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from qkv.scripts.attention_view.positions import Positions
from qkv.scripts.attention_view.stacks import Stack, Weights

NAMED = 40  # labels of an axis; of more every second or third one is written
INCHES = 4.6  # of a matrix


def draw_view(title: str, stacks: Sequence[Stack], form: str) -> bytes:
    """Return a figure of stacks as PNG or SVG: for each the last layer, mean over heads, and the entropy of all heads."""
    figure = Figure(figsize=(2 * INCHES + 1.2, (INCHES + 0.6) * len(stacks)), layout="constrained")
    figure.suptitle(title.replace("$", r"\$"), fontsize=10)
    axes = figure.subplots(len(stacks), 2, squeeze=False, width_ratios=(1.5, 1))
    for stack, (left, right) in zip(stacks, axes, strict=True):
        draw_matrix(left, stack.weights[-1].mean(0), stack.queries, stack.keys)
        left.set_title(f"{stack.name}, layer {stack.layers[-1]}, mean over heads", fontsize=9)
        draw_entropy(right, stack)
    content = io.BytesIO()
    figure.savefig(content, format=form, dpi=150)
    return content.getvalue()


def draw_matrix(axis: Any, weights: Weights, queries: Positions, keys: Positions) -> None:
    """Draw weights (T, S) with the names of queries and keys."""
    axis.imshow(weights, cmap="magma", vmin=0.0, aspect="auto", interpolation="nearest")
    for side, positions, angle in ((axis.yaxis, queries, 0), (axis.xaxis, keys, 90)):
        places = range(0, len(positions), max(1, -(-len(positions) // NAMED)))
        # A dollar sign would begin a formula.
        names = [positions.labels[place].replace("$", r"\$") for place in places]
        side.set_ticks(list(places), names, fontsize=7, rotation=angle)


def draw_entropy(axis: Any, stack: Stack) -> None:
    """Draw the entropy of every layer and head in bits."""
    shown = axis.imshow(stack.entropy, cmap="viridis", aspect="auto", vmin=0.0)
    axis.set_yticks(range(len(stack.layers)), [str(number) for number in stack.layers], fontsize=7)
    axis.set(xlabel="head", ylabel="layer")
    axis.set_xticks(np.arange(stack.entropy.shape[1]))
    axis.set_title("entropy in bits", fontsize=9)
    axis.figure.colorbar(shown, ax=axis)
