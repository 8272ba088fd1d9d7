"""What is written and shown while a training runs? A line of metrics for each logged step, and a progress bar."""

import math
import sys
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.training.loop import Step
from qkv.scripts.training.record import log


class Journal:
    """Metrics of a run, in `metrics.jsonl`, trackers and on the screen of the main process; others stay silent."""

    def __init__(self, folder: Path, recipe: Recipe, accelerator: Accelerator) -> None:
        self.folder, self.recipe, self.accelerator = folder, recipe, accelerator
        self.path = folder / "metrics.jsonl"
        self.losses: list[float] = []
        self.tokens = 0
        self.shown: dict[str, float] = {}
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self.progress = Progress(
            TextColumn("{task.description}"), *columns, TextColumn("{task.fields[state]}"),
            console=Console(stderr=True), disable=not accelerator.is_main_process,
        )  # fmt: skip
        self.bar = self.progress.add_task(recipe.name, total=recipe.max_steps, state="")

    def step(self, step: Step) -> None:
        """Take note of a step; FloatingPointError when its loss is no longer a number."""
        loss = step.loss.item()
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss} at step {step.number}; try a lower learning_rate")
        self.losses.append(loss)
        self.tokens += int(step.tokens)
        if step.number % self.recipe.log_every == 0 or step.number == self.recipe.max_steps:
            self.shown["loss"] = sum(self.losses) / len(self.losses)
            self.losses.clear()
            self.write(
                step=step.number,
                loss=self.shown["loss"],
                lr=step.learning_rate,
                grad_norm=step.grad_norm.item(),
                samples=step.number * self.recipe.batch_size,
                tokens=self.tokens,
            )
        self.show(step.number)

    def results(self, number: int, results: dict[str, dict[str, float]]) -> None:
        """Take note of an evaluation after that many steps."""
        for split, metrics in results.items():
            self.write(step=number, split=split, **metrics)
            self.shown |= {f"{split} {name}": value for name, value in metrics.items() if name != "loss"}
        self.show(number)

    def state(self) -> dict[str, Any]:
        """What is noted and not yet written, as JSON."""
        return {"losses": self.losses, "tokens": self.tokens, "shown": self.shown}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.losses, self.tokens, self.shown = state["losses"], state["tokens"], state["shown"]

    def say(self, sentence: str) -> None:
        """Tell the user something, above the progress bar."""
        if self.accelerator.is_main_process and sentence:
            print(f"qkv: {sentence}", file=sys.stderr)

    def write(self, **line: Any) -> None:
        """Add a line to the metrics."""
        if self.accelerator.is_main_process:
            log(self.folder, **line)
            split = line.get("split", "train")
            values = {f"{split}/{name}": value for name, value in line.items() if name not in ("step", "split")}
            self.accelerator.log(values, step=line["step"])

    def show(self, number: int) -> None:
        """Bring the progress bar up to date."""
        state = "  ".join(f"{name} {value:.4f}" for name, value in self.shown.items())
        self.progress.update(self.bar, completed=number, state=state)
