"""The table that probes fill: rows for a data frame, and a figure of all of them."""

import math
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from qkv.scripts.attention.statistics import COLOURS
from qkv.scripts.common import extras

Row = dict[str, Any]
# Width and height of a panel, and panels in a row.
WIDTH, HEIGHT, ROW = 3.6, 3.2, 4
# The unit of each probe, the end of its scale where that is fixed, and its meaning.
PROBES: dict[str, tuple[str, float | None, str]] = {
    "entropy": ("bits", None, "0 if one key gets all the weight"),
    "distance": ("positions", None, "mean distance from query to key"),
    "first_token": ("weight", 1.0, "weight of the first token of the row"),
    "induction": ("weight", 1.0, "weight of the token after an equal one"),
}


@dataclass
class ProbeTable:
    """Rows of probes, each of a head: dicts with the columns probe, stack, layer, head and value.

    `pandas.DataFrame(table.rows)` is a data frame.
    """

    model: str
    rows: list[Row] = field(default_factory=list)

    def add(self, probe: str, place: tuple[str, int], values: Tensor) -> None:
        """Add a row for each head of a layer, by its stack and number, that has a value: (H,)."""
        stack, layer = place
        numbered = [(head, value) for head, value in enumerate(values.tolist()) if not math.isnan(value)]
        self.rows += [dict(probe=probe, stack=stack, layer=layer, head=head, value=value) for head, value in numbered]

    def select(self, probe: str, stack: str | None = None) -> list[Row]:
        """Return the rows of a probe, in one stack or in all; ValueError where there are none."""
        rows = [row for row in self.rows if row["probe"] == probe and stack in (None, row["stack"])]
        if not rows:
            known = ", ".join(dict.fromkeys(f"{row['probe']} ({row['stack']})" for row in self.rows))
            raise ValueError(f"probe={probe!r} has no rows in stack={stack!r}; there are {known}")
        return rows

    def figure(self) -> Any:
        """Draw a matplotlib Figure: a map of layers and heads for each probe of a stack."""
        panels = dict[tuple[str, str], list[Row]]()
        for row in self.rows:
            panels.setdefault((row["probe"], row["stack"]), []).append(row)
        columns = min(ROW if len(panels) > ROW else 2, len(panels)) or 1
        rows = -(-len(panels) // columns) or 1
        make = extras.load("matplotlib.figure").Figure
        figure = make(figsize=(WIDTH * columns, HEIGHT * rows), layout="constrained")
        figure.suptitle(f"probes of {self.model}")
        for number, ((probe, stack), own) in enumerate(panels.items(), 1):
            axis = figure.add_subplot(rows, columns, number)
            axis.set_title(f"{probe.replace('_', ' ')}, {stack}\n{PROBES[probe][2]}", fontsize=9)
            draw_map(axis, own, PROBES[probe][1] or max(row["value"] for row in self.select(probe)))
        return figure


def draw_map(axis: Any, rows: list[Row], most: float) -> None:
    """Draw the values of layers and heads from 0 to `most`, layer 0 at the top; a head without a value stays white."""
    layers, heads = (1 + max(row[name] for row in rows) for name in ("layer", "head"))
    values = [[math.nan] * heads for _ in range(layers)]
    for row in rows:
        values[row["layer"]][row["head"]] = row["value"]
    shown = axis.imshow(values, cmap=COLOURS, aspect="auto", vmin=0, vmax=most)
    axis.figure.colorbar(shown, ax=axis, label=PROBES[rows[0]["probe"]][0])
    axis.set(xlabel="head", ylabel="layer")
    for side in (axis.xaxis, axis.yaxis):
        side.get_major_locator().set_params(integer=True)
