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
    "similarity": "cosine similarity of positions",
}
SHARES = {"first_token", "induction"}  # from 0 to 1
# A panel's width and height, and panels of a row.
WIDTH, HEIGHT, ROW = 3.6, 2.9, 4


def draw(table: ProbeTable) -> Figure:
    """Draw maps of layers and heads, lines over layers or distances, and the similarity of positions."""
    panels = list(panels_of(table))
    columns = min(ROW, len(panels)) or 1
    rows = -(-len(panels) // columns) or 1
    figure = Figure(figsize=(WIDTH * columns, HEIGHT * rows), layout="constrained")
    figure.suptitle(f"probes of {table.model}")
    for number, (probe, stack, rows_of_panel) in enumerate(panels):
        axis = figure.add_subplot(rows, columns, number + 1)
        axis.set_title(f"{TITLES[probe]}, {stack}" if stack else TITLES[probe], fontsize=9)
        if probe == "similarity":
            draw_map(
                axis, table.similarity[stack].cpu().numpy(), ("position", "position"), vmin=-1, cmap="RdBu_r", vmax=1
            )
        elif rows_of_panel[0]["distance"] is None and rows_of_panel[0]["head"] is not None:
            draw_map(axis, by_head(rows_of_panel), ("head", "layer"), vmin=0, vmax=1 if probe in SHARES else None)
        else:
            draw_lines(axis, rows_of_panel)
    return figure


def panels_of(table: ProbeTable) -> Iterator[tuple[str, str, list[Row]]]:
    """Yield a panel for each probe of heads or distances in each stack, and for each probe of layers in all stacks."""
    for probe in table.probes:
        rows = table.select(probe)
        by_layer = rows[0]["head"] is None and rows[0]["distance"] is None
        for stack in [""] if by_layer else dict.fromkeys(row["stack"] for row in rows):
            yield probe, stack, [row for row in rows if stack in ("", row["stack"])]
    for stack in table.similarity:
        yield "similarity", stack, []


def by_head(rows: list[Row]) -> Any:
    """Return the values of layers and heads; a head without a value, as one of padding alone, has nan."""
    values = np.full([1 + max(row[name] for row in rows) for name in ("layer", "head")], np.nan)
    for row in rows:
        values[row["layer"], row["head"]] = row["value"]
    return values


def draw_map(axis: Axes, values: Any, names: tuple[str, str], **options: Any) -> None:
    """Draw a map with its colours; positions run downwards, layers upwards."""
    image = axis.imshow(values, aspect="auto", origin="lower" if names[0] == "head" else "upper", **options)
    axis.set(xlabel=names[0], ylabel=names[1])
    for side in (axis.xaxis, axis.yaxis):
        locator: Any = side.get_major_locator()
        locator.set_params(integer=True)
    figure: Any = axis.figure
    figure.colorbar(image, ax=axis)


def draw_lines(axis: Axes, rows: list[Row]) -> None:
    """Draw a line over the layers for each stack, or over the distance for each head."""
    over, line = ("layer", "stack") if rows[0]["distance"] is None else ("distance", "head")
    names = list(dict.fromkeys(row[line] for row in rows))
    for name in names:
        own = [row for row in rows if row[line] == name]
        axis.plot([row[over] for row in own], [row["value"] for row in own], marker=".", label=f"{line} {name}")
    axis.set(xlabel=over)
    axis.grid(alpha=0.3)
    values = [row["value"] for row in rows]
    if over == "layer" and 0 < 10 * min(values) < max(values):
        axis.set_yscale("log")
    if names != [None]:
        axis.legend(fontsize=6, ncols=2)
