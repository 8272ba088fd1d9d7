"""Draw the rows of a probe table: one panel for each probe of a stack."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qkv.scripts.probes.table import ProbeTable, Row

# Width and height of a panel, and panels in a row.
WIDTH, HEIGHT, ROW = 3.6, 2.9, 4


def draw(table: ProbeTable) -> Figure:
    """Draw maps of layers and heads, lines over layers or distances, and the similarity of positions."""
    panels = dict[tuple[str, str], list[Row]]()
    for row in table.rows:
        by_layer = row["head"] is None and row["distance"] is None
        panels.setdefault((row["probe"], "" if by_layer else row["stack"]), []).append(row)
    count = len(panels) + len(table.similarity)
    rows, columns = -(-count // ROW) or 1, min(ROW, count) or 1
    figure = Figure(figsize=(WIDTH * columns, HEIGHT * rows), layout="constrained")
    figure.suptitle(f"probes of {table.model}")
    axes = [figure.add_subplot(rows, columns, number + 1) for number in range(count)]
    for axis, ((probe, stack), own) in zip(axes, panels.items(), strict=False):
        axis.set_title(", ".join(filter(None, (probe.replace("_", " "), stack))), fontsize=9)
        if own[0]["head"] is None:
            draw_lines(axis, own)
        else:
            draw_map(axis, by_head(own), ("head", "layer"), vmin=0, origin="lower")
    for axis, (stack, values) in zip(axes[len(panels) :], table.similarity.items(), strict=True):
        axis.set_title(f"cosine similarity of positions, {stack}", fontsize=9)
        draw_map(axis, values.cpu().numpy(), ("position", "position"), vmin=-1, vmax=1, cmap="RdBu_r")
    return figure


def by_head(rows: list[Row]) -> Any:
    """Return the values of layers and heads; a head without a value, as one of padding alone, has nan."""
    values = np.full([1 + max(row[name] for row in rows) for name in ("layer", "head")], np.nan)
    for row in rows:
        values[row["layer"], row["head"]] = row["value"]
    return values


def draw_map(axis: Axes, values: Any, names: tuple[str, str], **options: Any) -> None:
    """Draw a map with its colours."""
    figure: Any = axis.figure
    figure.colorbar(axis.imshow(values, aspect="auto", **options), ax=axis)
    axis.set(xlabel=names[0], ylabel=names[1])
    for side in (axis.xaxis, axis.yaxis):
        locator: Any = side.get_major_locator()
        locator.set_params(integer=True)


def draw_lines(axis: Axes, rows: list[Row]) -> None:
    """Draw a line over the layers or over the distance for each stack."""
    over = "layer" if rows[0]["distance"] is None else "distance"
    for stack in dict.fromkeys(row["stack"] for row in rows):
        own = [row for row in rows if row["stack"] == stack]
        axis.plot([row[over] for row in own], [row["value"] for row in own], marker=".", label=stack)
    axis.set(xlabel=over)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=6, ncols=2)
    values = [row["value"] for row in rows]
    if over == "layer" and 0 < 10 * min(values) < max(values):
        axis.set_yscale("log")
