"""Plot the loss curve of a training, also while it runs."""

import io
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from matplotlib.figure import Figure

from qkv.scripts.common.files import write_atomically

# The curve of a running training is drawn after so many seconds at the earliest, and in that share of its time.
SHORTEST, SHARE = 5.0, 0.01


@dataclass
class LiveCurve:
    """Draw the curve of a training that goes on now and then, so seldom that it costs nothing to speak of."""

    path: Path
    read: Callable[[], list[dict[str, Any]]]
    clock: Callable[[], float] = time.monotonic
    drawn: float = field(init=False)
    pause: float = SHORTEST

    def __post_init__(self) -> None:
        self.drawn = self.clock()

    def update(self) -> None:
        """Draw what is logged so far, unless that was done a moment ago; the picture appears whole."""
        began = self.clock()
        if began - self.drawn < self.pause:
            return
        content = io.BytesIO()
        draw_curve(self.read(), content)
        write_atomically(self.path, content.getvalue())
        self.drawn = self.clock()
        self.pause = max(SHORTEST, (self.drawn - began) / SHARE)


def draw_curve(lines: list[dict[str, Any]], path: Path | BinaryIO) -> None:
    """Plot losses by step, and every other metric that was logged more than once, from a run's metrics."""
    trained = [line for line in lines if "split" not in line]
    evaluated = [line for line in lines if "split" in line]
    taken = Counter((line["split"], name) for line in evaluated for name in line)
    names = sorted({name for (_, name), count in taken.items() if count > 1} - {"step", "split", "loss"})
    figure = Figure(figsize=(5 * (1 + len(names)), 3.5), layout="constrained")
    axes = figure.subplots(1, 1 + len(names), squeeze=False)
    axes[0, 0].plot(*columns(trained, "loss"), label="train", linewidth=1)
    axes[0, 0].set_yscale("log")
    for axis, name in zip(axes[0], ["loss", *names], strict=True):
        for split in sorted({line["split"] for line in evaluated}):
            axis.plot(*columns([line for line in evaluated if line["split"] == split], name), label=split, marker=".")
        axis.set(xlabel="step", title=name)
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=150)


def columns(lines: list[dict[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """Return the steps and values of one metric."""
    return [line["step"] for line in lines], [line[name] for line in lines]
