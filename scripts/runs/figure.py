"""Draw the losses and metrics of several runs by step, in one figure."""

import io
from collections.abc import Sequence
from pathlib import Path

from matplotlib import colormaps
from matplotlib.figure import Figure

from qkv.scripts.common.files import write_atomically
from qkv.scripts.runs.reading import Run

FORMATS = (".svg", ".png", ".pdf")
# A panel's width and height, and panels of a row.
WIDTH, HEIGHT, ROW = 4.5, 3.2, 3
TRAINED = ("train", "loss")


def check_format(path: Path) -> None:
    """Raise ValueError for a file that is no figure by its name."""
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"--out={path} must end in one of {', '.join(FORMATS)}")


def draw(runs: Sequence[Run], path: Path) -> None:
    """Draw a panel for each metric of a split, with a line of one colour for each run; the file appears whole."""
    panels = panels_of(runs)
    columns = min(ROW, len(panels))
    rows = -(-len(panels) // columns)
    legend = 0.25 * -(-len(runs) // columns)
    figure = Figure(figsize=(WIDTH * columns, HEIGHT * rows + legend), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flat
    colours = colormaps["tab10" if len(runs) <= 10 else "turbo"].resampled(max(len(runs), 10))
    for axis, (split, name) in zip(axes, panels, strict=False):
        for number, run in enumerate(runs):
            steps, values = series(run, split, name)
            mark = "." if split != "train" else ""
            axis.plot(steps, values, color=colours(number), label=str(run.folder), marker=mark, linewidth=1)
        axis.set(xlabel="step", title=f"{split} {name}", **({"yscale": "log"} if name == "loss" else {}))
        axis.grid(alpha=0.3)
    for axis in list(figure.axes)[len(panels) :]:
        axis.set_axis_off()
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8)
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:].lower(), dpi=150)
    write_atomically(path, content.getvalue())


def panels_of(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Return the loss of training, and every metric of a split that was evaluated while a run went on."""
    evaluated = {
        (line["split"], name): None
        for run in runs
        for line in run.lines
        if line.get("split", "test") != "test"
        for name in line
        if name not in ("step", "split")
    }
    return [TRAINED, *sorted(evaluated, key=lambda panel: (panel[0], panel[1] != "loss", panel[1]))]


def series(run: Run, split: str, name: str) -> tuple[list[int], list[float]]:
    """Return the steps and values of a metric of a run."""
    own = [line for line in run.lines if line.get("split", "train") == split and name in line]
    return [line["step"] for line in own], [line[name] for line in own]
