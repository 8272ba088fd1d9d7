"""Draw the rows of a probe table: one panel for each probe of a stack."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qkv.scripts.probes.table import ProbeTable, Row

TITLES = {
    "entropy": "entropy (nats)",
    "distance": "attention distance",
    "first_token": "attention to the first token",
    "induction": "induction score",
    "norm": "norm of activations",
    "kurtosis": "kurtosis of activations",
    "max_abs": "largest activation",
    "gradient_norm": "norm of gradients",
    "gradient_kurtosis": "kurtosis of gradients",
    "lens_entropy": "logit lens: entropy (nats)",
    "lens_probability": "logit lens: probability of the target",
    "lens_rank": "logit lens: rank of the target",
    "position_similarity": "similarity of positions",
    "position_bias": "bias of scores",
}
LOGARITHMIC = {"norm", "kurtosis", "max_abs", "gradient_norm", "gradient_kurtosis", "lens_rank"}
SHARES = {"first_token", "induction"}  # from 0 to 1
# A panel's width and height, and panels of a row.
WIDTH, HEIGHT, ROW = 3.6, 2.9, 4
MOST_NAMED = 12  # heads in a legend


def draw(table: ProbeTable) -> Figure:
    """Draw maps of layers and heads, lines over layers or distances, and the similarity of positions."""
    panels = list(panels_of(table))
    columns = min(ROW, len(panels)) or 1
    rows = -(-len(panels) // columns) or 1
    figure = Figure(figsize=(WIDTH * columns, HEIGHT * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    figure.suptitle(f"probes of {table.model}")
    for axis, (probe, stack, rows_of_panel) in zip(axes, panels, strict=False):
        if probe == "similarity":
            draw_matrix(axis, table.similarity[stack])
        elif rows_of_panel[0]["distance"] is not None:
            draw_by_distance(axis, rows_of_panel)
        elif rows_of_panel[0]["head"] is not None:
            draw_heads(axis, probe, rows_of_panel)
        else:
            draw_by_layer(axis, probe, rows_of_panel)
        title = TITLES.get(probe, "cosine similarity of positions")
        axis.set_title(f"{title}, {stack}" if stack else title, fontsize=9)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    return figure


def panels_of(table: ProbeTable) -> Iterator[tuple[str, str, list[Row]]]:
    """Yield a panel for each probe of heads or distances in each stack, and for each probe of layers in all stacks."""
    for probe in table.probes:
        rows = table.select(probe)
        if rows[0]["head"] is None and rows[0]["distance"] is None:
            yield probe, "", rows
            continue
        for stack in dict.fromkeys(row["stack"] for row in rows):
            yield probe, stack, [row for row in rows if row["stack"] == stack]
    for stack in table.similarity:
        yield "similarity", stack, []


def draw_heads(axis: Axes, probe: str, rows: list[Row]) -> None:
    """Draw a map of layers and heads; a head without a value, as one of padding alone, is left white."""
    shape = [1 + max(row[name] for row in rows) for name in ("layer", "head")]
    values = np.full(shape, np.nan)
    for row in rows:
        values[row["layer"], row["head"]] = row["value"]
    image = axis.imshow(values, aspect="auto", origin="lower", vmin=0, vmax=1 if probe in SHARES else None)
    whole_numbers(axis.xaxis)
    whole_numbers(axis.yaxis)
    axis.set(xlabel="head", ylabel="layer")
    colour_bar(axis, image)


def draw_by_layer(axis: Axes, probe: str, rows: list[Row]) -> None:
    """Draw a line over the layers for each stack."""
    for stack in dict.fromkeys(row["stack"] for row in rows):
        own = [row for row in rows if row["stack"] == stack]
        axis.plot([row["layer"] for row in own], [row["value"] for row in own], marker=".", label=stack)
    whole_numbers(axis.xaxis)
    axis.set(xlabel="layer")
    values = [row["value"] for row in rows]
    if probe in LOGARITHMIC and 0 < 10 * min(values) < max(values):
        axis.set_yscale("log")
    axis.legend(fontsize=7)
    axis.grid(alpha=0.3)


def draw_by_distance(axis: Axes, rows: list[Row]) -> None:
    """Draw a line over the distance, for each head where they differ."""
    heads = list(dict.fromkeys(row["head"] for row in rows))
    for head in heads:
        own = [row for row in rows if row["head"] == head]
        label = None if head is None else f"head {head}"
        axis.plot([row["distance"] for row in own], [row["value"] for row in own], label=label, linewidth=1)
    axis.set(xlabel="distance")
    if rows[0]["head"] is not None and len(heads) <= MOST_NAMED:
        axis.legend(fontsize=6, ncols=2)
    axis.grid(alpha=0.3)


def draw_matrix(axis: Axes, similarity: Any) -> None:
    """Draw the cosine similarity of each pair of positions."""
    image = axis.imshow(similarity.cpu().numpy(), vmin=-1, vmax=1, cmap="RdBu_r")
    axis.set(xlabel="position", ylabel="position")
    colour_bar(axis, image)


def colour_bar(axis: Axes, image: Any) -> None:
    """Show what the colours of a panel mean."""
    figure: Any = axis.figure
    figure.colorbar(image, ax=axis)


def whole_numbers(axis: Any) -> None:
    """Mark whole numbers alone, as those of layers and heads are."""
    axis.get_major_locator().set_params(integer=True)
