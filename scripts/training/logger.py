"""Log the metrics of a training to `metrics.jsonl`, to trackers, to the screen and, at the end, as a picture."""

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from matplotlib.figure import Figure
from tqdm import tqdm

from qkv.scripts.common.files import full_disk_named
from qkv.scripts.common.phases import is_first_process
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.training.loop import Step
from qkv.scripts.training.record import METRICS
from qkv.scripts.training.trackers import start_trackers

SECONDS = 10.0  # between two lines of progress in a file
COLOURS = {"train": "C0", "validation": "C1", "test": "C2"}


def check_losses(results: Mapping[str, Mapping[str, float]]) -> None:
    """Raise FloatingPointError for a loss of NaN, which the weights that are kept have when they are NaN."""
    for split, metrics in results.items():
        if math.isnan(metrics.get("loss", 0.0)):
            raise FloatingPointError(f"the {split} loss is nan; train with a lower learning_rate and another out=")


class MetricLogger:
    """Log the metrics of a run on the main process; other processes stay silent."""

    def __init__(self, folder: Path, recipe: Recipe, accelerator: Accelerator) -> None:
        self.recipe, self.accelerator = recipe, accelerator
        self.path = folder / METRICS
        self.losses: list[float] = []
        self.unread: list[Step] = []
        self.tokens = 0
        self.shown: dict[str, float] = {}
        self.best = ""
        self.progress: Any = tqdm(disable=True)

    def start(self, done: int) -> Any:
        """Start the trackers, and return the progress bar, which counts from the steps that are done."""
        start_trackers(self.accelerator, self.recipe, self.path.parent, done)
        pause = 0.1 if sys.stderr.isatty() or "ipykernel" in sys.modules else SECONDS
        # ASCII, and not tqdm's bar for notebooks, which shows nothing without ipywidgets.
        self.progress = tqdm(
            desc=self.recipe.name, total=self.recipe.optimization.max_steps, initial=done, unit="step", ascii=" #",
            dynamic_ncols=True, mininterval=pause, disable=not is_first_process(),
        )  # fmt: skip
        return self.progress

    def log_step(self, step: Step) -> None:
        """Log a step, every `log_every` of them; FloatingPointError when a loss is not finite.

        Losses on a GPU are read when they are logged, or it would wait for the host after each step.
        """
        self.unread.append(step)
        due = step.number % self.recipe.output.log_every == 0 or step.number == self.recipe.optimization.max_steps
        if due or step.loss.device.type == "cpu" or not self.shown:
            self.read_losses()
        if due:
            self.shown["loss"] = sum(self.losses) / len(self.losses)
            self.losses.clear()
            self.write(
                step.number,
                step=step.number,
                loss=self.shown["loss"],
                lr=step.learning_rate,
                grad_norm=step.grad_norm.item(),
                samples=step.number * self.recipe.optimization.batch_size,
                **({"tokens": self.tokens} if self.tokens else {}),
            )
        self.show(step.number)

    def read_losses(self) -> None:
        """Wait for the losses that were not read yet; FloatingPointError when one is not finite."""
        for step in self.unread:
            loss = step.loss.item()
            if not math.isfinite(loss):
                raise FloatingPointError(f"the loss is {loss} at step {step.number}; try a lower learning_rate")
            self.losses.append(loss)
            self.tokens += int(step.tokens)
            self.shown.setdefault("loss", loss)
        self.unread.clear()

    def log_evaluation(self, number: int, results: dict[str, dict[str, float]], kept: int | None = None) -> None:
        """Log the metrics of each split after that many steps, with the weights of step `kept` or else these."""
        for split, metrics in results.items():
            self.write(number, step=number if kept is None else kept, split=split, **metrics)
            self.shown |= {f"{split} {name}": value for name, value in metrics.items() if name != "loss"}
        self.show(number)

    def state_dict(self) -> dict[str, Any]:
        """Return the losses that are not written yet, and the values on the screen, as JSON."""
        self.read_losses()
        return {"losses": self.losses, "tokens": self.tokens, "shown": self.shown}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        self.losses, self.tokens, self.shown = (state[key] for key in ("losses", "tokens", "shown"))

    def write(self, number: int, **line: Any) -> None:
        """Append a line to the metrics, and send it to the trackers, which take no step before the last `number`."""
        if self.accelerator.is_main_process:
            # Unbuffered, or a training that is killed leaves half a line.
            with full_disk_named(self.path), self.path.open("ab", buffering=0) as file:
                file.write(json.dumps(line).encode() + b"\n")
            split = line.get("split", "train")
            values = {f"{split}/{name}": value for name, value in line.items() if name not in ("step", "split")}
            self.accelerator.log(values, step=number)

    def show(self, number: int) -> None:
        """Show the latest metrics and the best."""
        state = [f"{name} {value:.4f}" for name, value in self.shown.items()]
        self.progress.set_postfix_str(", ".join(filter(None, [*state, self.best])), refresh=False)
        self.progress.update(number - self.progress.n)


def draw_curve(lines: list[dict[str, Any]], path: Path, kept: int | None = None) -> None:
    """Plot losses by step, and every other metric that was logged more than once, and mark the step that is kept."""
    curves: dict[str, dict[str, list[tuple[int, float]]]] = {"loss": {}}
    for line in lines:
        for name in line.keys() - {"step", "split"} if "split" in line else ("loss",):
            curves.setdefault(name, {}).setdefault(line.get("split", "train"), []).append((line["step"], line[name]))
    several = [name for name, splits in curves.items() if any(len(points) > 1 for points in splits.values())]
    names = ["loss", *sorted(set(several) - {"loss"})]
    figure = Figure(figsize=(5 * len(names), 3.5), layout="constrained")
    for axis, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        for split, points in sorted(curves[name].items(), key=lambda item: [*COLOURS, item[0]].index(item[0])):
            style: Any = {"linewidth": 1} if split == "train" else {"marker": "."}
            axis.plot(*zip(*points, strict=True), label=split, color=COLOURS.get(split), **style)
        if kept is not None:
            axis.axvline(kept, color="gray", linestyle=":", label=f"step {kept}, whose weights are kept")
        values = [value for points in curves[name].values() for _, value in points]
        # On a logarithmic axis what is not above zero has no place, and less than a decade no short numbers.
        is_wide = name == "loss" and 0 < 10 * min(values, default=0) < max(values)
        axis.set(xlabel="step", title=name, yscale="log" if is_wide else "linear")
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=150)
