"""Log the metrics of a training: `metrics.jsonl`, trackers, and what the screen shows."""

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from qkv.scripts.common.files import full_disk_named
from qkv.scripts.common.phases import say
from qkv.scripts.common.run_folder import CURVE, METRICS, read_metrics
from qkv.scripts.common.tables import scaled
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.training.loop import Step
from qkv.scripts.training.plots import LiveCurve
from qkv.scripts.training.progress import GAP, progress_display
from qkv.scripts.training.trackers import running, start_trackers


def check_losses(results: Mapping[str, Mapping[str, float]]) -> None:
    """Raise FloatingPointError for a loss of the weights that are kept that is no number."""
    for split, metrics in results.items():
        if math.isnan(metrics.get("loss", 0.0)):
            raise FloatingPointError(
                f"the {split} loss is nan, for the weights are no numbers; train with a lower learning_rate and "
                "another out="
            )


class MetricLogger:
    """Log the metrics of a run on the main process; other processes stay silent."""

    clock = staticmethod(time.monotonic)

    def __init__(self, folder: Path, recipe: Recipe, accelerator: Accelerator) -> None:
        self.recipe, self.accelerator = recipe, accelerator
        self.path = folder / METRICS
        self.losses: list[float] = []
        self.tokens = 0
        self.shown: dict[str, float] = {}
        self.best = ""
        # What the last step says of itself, and the speed since the last line, evaluations apart.
        self.last: list[str] = []
        self.speed, self.counted, self.since = "", 0, self.clock()
        # The runs in which trackers log it, as they name them.
        self.runs: dict[str, str] = {}
        is_main = accelerator.is_main_process
        self.progress = progress_display(recipe.name, recipe.optimization.max_steps, is_main=is_main)
        self.curve = LiveCurve(folder / CURVE, lambda: read_metrics(folder), self.clock) if is_main else None

    def start(self, done: int) -> None:
        """Start the trackers, or go on in the runs in which they have logged the steps that are done."""
        start_trackers(self.accelerator, self.recipe, self.path.parent, self.runs, done)
        self.runs = running(self.accelerator, self.recipe)

    def log_step(self, step: Step) -> None:
        """Log a step, every `log_every` of them; FloatingPointError when its loss is not finite."""
        loss = step.loss.item()
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss} at step {step.number}; try a lower learning_rate")
        self.losses.append(loss)
        self.shown.setdefault("loss", loss)
        self.last = [f"lr {step.learning_rate:.2g}", f"grad_norm {step.grad_norm.item():.3g}"]
        self.tokens += int(step.tokens)
        self.counted += int(step.tokens)
        if step.number % self.recipe.output.log_every == 0 or step.number == self.recipe.optimization.max_steps:
            self.shown["loss"] = sum(self.losses) / len(self.losses)
            self.losses.clear()
            self.write(
                step=step.number,
                loss=self.shown["loss"],
                lr=step.learning_rate,
                grad_norm=step.grad_norm.item(),
                samples=step.number * self.recipe.optimization.batch_size,
                tokens=self.tokens,
            )
            self.measure_speed(step.unit)
            self.draw()
        self.show(step.number)

    def log_evaluation(self, number: int, results: dict[str, dict[str, float]]) -> None:
        """Log the metrics of each split after that many steps."""
        for split, metrics in results.items():
            self.write(step=number, split=split, **metrics)
            self.shown |= {f"{split} {name}": value for name, value in metrics.items() if name != "loss"}
        if results:  # without a split to evaluate there may be no line yet
            self.draw()
        self.since, self.counted = self.clock(), 0
        self.show(number)

    def measure_speed(self, unit: str) -> None:
        """Measure what the steps since the last line, or the last evaluation, took."""
        seconds = self.clock() - self.since
        self.speed = f"{scaled(self.counted / seconds, '').strip()} {unit}/s" if seconds > 0 else ""
        self.since, self.counted = self.clock(), 0

    def draw(self) -> None:
        """Draw the curve of what is logged so far, on the main process."""
        if self.curve is not None:
            self.curve.update()

    def state_dict(self) -> dict[str, Any]:
        """Return what is not yet written, and where trackers log, as JSON."""
        return {"losses": self.losses, "tokens": self.tokens, "shown": self.shown, "runs": self.runs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        self.losses, self.tokens, self.shown = state["losses"], state["tokens"], state["shown"]
        self.runs = state.get("runs", {})  # checkpoints of earlier versions have none

    def print(self, sentence: str) -> None:
        """Print a sentence."""
        if sentence:
            say(sentence)

    def write(self, **line: Any) -> None:
        """Append a line to the metrics, and send it to the trackers."""
        if self.accelerator.is_main_process:
            # Unbuffered, or a training that is killed leaves half a line.
            with full_disk_named(self.path), self.path.open("ab", buffering=0) as file:
                file.write(json.dumps(line).encode() + b"\n")
            split = line.get("split", "train")
            values = {f"{split}/{name}": value for name, value in line.items() if name not in ("step", "split")}
            self.accelerator.log(values, step=line["step"])

    def show(self, number: int) -> None:
        """Show the last values of the metrics, of the step and of its speed, and the best."""
        state = [f"{name} {value:.4f}" for name, value in self.shown.items()]
        self.progress.update(number, GAP.join(filter(None, [*state, *self.last, self.speed, self.best])))
