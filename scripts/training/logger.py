"""Log the metrics of a training to `metrics.jsonl`, to trackers and to the screen."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from qkv.scripts.common.files import full_disk_named
from qkv.scripts.common.run_folder import METRICS
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.training.loop import Step
from qkv.scripts.training.progress import ProgressBar
from qkv.scripts.training.trackers import start_trackers


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
        self.tokens = 0
        self.shown: dict[str, float] = {}
        self.best = ""
        self.runs: dict[str, str] = {}  # of trackers, by their ids
        self.progress: ProgressBar | None = None

    def start(self, done: int) -> ProgressBar:
        """Start the trackers and the progress bar; a resumed training continues after the steps that are done."""
        self.runs = start_trackers(self.accelerator, self.recipe, self.path.parent, self.runs, done)
        self.progress = ProgressBar(self.recipe.name, self.recipe.optimization.max_steps, done)
        return self.progress

    def log_step(self, step: Step) -> None:
        """Log a step, every `log_every` of them; FloatingPointError when its loss is not finite."""
        loss = step.loss.item()
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss} at step {step.number}; try a lower learning_rate")
        self.losses.append(loss)
        self.tokens += int(step.tokens)
        self.shown.setdefault("loss", loss)
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
        self.show(step.number)

    def log_evaluation(self, number: int, results: dict[str, dict[str, float]]) -> None:
        """Log the metrics of each split after that many steps."""
        for split, metrics in results.items():
            self.write(step=number, split=split, **metrics)
            self.shown |= {f"{split} {name}": value for name, value in metrics.items() if name != "loss"}
        self.show(number)

    def state_dict(self) -> dict[str, Any]:
        """Return the losses that are not written yet, the values on the screen and the runs of trackers, as JSON."""
        return {"losses": self.losses, "tokens": self.tokens, "shown": self.shown, "runs": self.runs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        self.losses, self.tokens, self.shown, self.runs = (state[key] for key in ("losses", "tokens", "shown", "runs"))

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
        """Show the latest metrics and the best."""
        state = [f"{name} {value:.4f}" for name, value in self.shown.items()]
        if self.progress is not None:
            self.progress.update(number, ", ".join(filter(None, [*state, self.best])))
