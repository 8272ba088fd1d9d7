"""The table that probes fill: rows for a data frame, and a figure of all of them."""

import base64
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from qkv.scripts.common import extras
from qkv.scripts.common.files import write_atomically

Row = dict[str, Any]
COLUMNS = ("probe", "stack", "layer", "head", "distance", "value")
FORMATS = (".svg", ".png", ".pdf")


@dataclass
class ProbeTable:
    """Rows of probes, each of a stack and, where it has one, of a layer, a head or a distance.

    `rows` are dicts with the columns probe, stack, layer, head, distance and value, None for a column that a probe
    lacks: `pandas.DataFrame(table.rows)` is a data frame. `similarity` has, by stack, the cosine similarity (T, T) of
    the vectors that tell positions apart. A notebook shows the figure.
    """

    model: str
    rows: list[Row] = field(default_factory=list)
    similarity: dict[str, Tensor] = field(default_factory=dict)

    def add(self, probe: str, stack: str, value: float, **place: int) -> None:
        """Add a row; `place` are its layer, head and distance."""
        self.rows.append({**dict.fromkeys(COLUMNS), "probe": probe, "stack": stack, **place, "value": value})

    def add_heads(self, probe: str, place: tuple[str, int], values: Tensor) -> None:
        """Add a row for each head of a layer that has a value: (H,)."""
        for head, value in enumerate(values.tolist()):
            if not math.isnan(value):
                self.add(probe, place[0], value, layer=place[1], head=head)

    def add_layer(self, place: tuple[str, int], values: Mapping[str, float]) -> None:
        """Add a row for each statistic of a layer."""
        for probe, value in values.items():
            self.add(probe, place[0], value, layer=place[1])

    @property
    def probes(self) -> list[str]:
        """The probes that have rows."""
        return list(dict.fromkeys(row["probe"] for row in self.rows))

    def select(self, probe: str, stack: str | None = None) -> list[Row]:
        """Return the rows of a probe, in one stack or in all; ValueError where there are none."""
        rows = [row for row in self.rows if row["probe"] == probe and stack in (None, row["stack"])]
        if not rows:
            stacks = ", ".join(dict.fromkeys(row["stack"] for row in self.rows))
            raise ValueError(
                f"probe={probe!r} has no rows in stack={stack!r}; there are {', '.join(self.probes)} in {stacks}"
            )
        return rows

    def figure(self) -> Any:
        """Draw all probes as a matplotlib Figure; MissingExtraError without matplotlib."""
        return extras.load("qkv.scripts.probes.figure").draw(self)

    def save(self, path: str | Path) -> None:
        """Write the figure to a file, .svg, .png or .pdf; ValueError for another name."""
        path = Path(path)
        if path.suffix.lower() not in FORMATS:
            raise ValueError(f"path={str(path)!r} must end in one of {', '.join(FORMATS)}")
        write_atomically(path, self.rendered(path.suffix[1:].lower()))

    def rendered(self, kind: str) -> bytes:
        """Return the figure as a file of a kind."""
        content = io.BytesIO()
        self.figure().savefig(content, format=kind, dpi=120)
        return content.getvalue()

    def _repr_html_(self) -> str:
        picture = base64.b64encode(self.rendered("png")).decode()
        return f'<img alt="Probes of {self.model}" src="data:image/png;base64,{picture}">'
