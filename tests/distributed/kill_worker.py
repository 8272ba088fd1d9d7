"""Trainings that die: `main` is that of one process of a training, whose rank comes from the environment.

It writes down which places of the endless order each step trained on, and when what happened. As a program it is a
process that torchrun started.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import torch

import checkout  # noqa: F401  makes qkv importable
from qkv.scripts import cli, train
from qkv.scripts.data.examples import Batch
from qkv.scripts.recipes.loading import load
from qkv.scripts.tasks import registry as data
from qkv.scripts.tasks.task import Task
from qkv.scripts.training import run
from qkv.scripts.training.checkpoint import Checkpoints
from qkv.scripts.training.loop import Loop
from qkv.scripts.training.memory.step_plan import StepPlan
from qkv.scripts.training.resume import CheckpointManager

WORDS = [
    "digits", "max_steps=12", "batch_size=8", "warmup_steps=2", "save_every=3", "eval_every=4", "log_every=2",
    "model.hidden_size=16", "model.num_hidden_layers=1", "model.residual_dropout=0.2",
]  # fmt: skip


def digits() -> Task:
    """The digits with the place of each."""
    task = data.load(load(WORDS[0], WORDS[1:]))

    def collate(records: list, places: list | None) -> Batch:
        batch = task.collate(records, places)
        return batch if places is None else {**batch, "_places": torch.tensor(places)}

    made = copy(task)
    made.collate = collate
    return made


# Made once for all that are forked.
TASK = digits()


def observe(
    owner: Any, name: str, before: Callable[[], None], after: Callable[..., None] = lambda *found: None
) -> None:
    """Have something called before and after each call of a function."""
    original = getattr(owner, name)

    def observed(*arguments: Any, **options: Any) -> Any:
        before()
        found = original(*arguments, **options)
        after(*arguments)
        return found

    setattr(owner, name, observed)


class Child:
    """One process of a training, which dies in the middle of what its job names."""

    def __init__(self, job: dict[str, Any], rank: int) -> None:
        self.job, self.folder, self.rank = job, Path(job["folder"]), rank
        self.death = job.get("death") if job.get("death", {}).get("rank") == rank else None
        self.calls: dict[str, int] = {}
        out = [f"out={self.folder}"] if job.get("out", True) else []
        self.words = ["train", *WORDS, *out, *job.get("words", [])]

    def started(self, what: str) -> Callable[[], None]:
        """Takes note of a call, and makes sure that the process dies during the one that is named."""

        def note() -> None:
            self.calls[what] = self.calls.get(what, 0) + 1
            self.write("times", [what, time.monotonic()])
            if self.death and (what, self.calls[what]) == (self.death["in"], self.death["call"]):
                threading.Thread(target=self.die).start() if self.death["after"] else self.die()

        return note

    def die(self) -> None:
        """Wait, and be no more, or be told so."""
        time.sleep(self.death["after"])
        os.kill(os.getpid(), self.death.get("signal", signal.SIGKILL))

    def trained(self, loop: Loop, batches: list[Batch]) -> None:
        """Write down what a step saw."""
        self.write("seen", [loop.done + 1, [place for batch in batches for place in batch["_places"].tolist()]])

    def write(self, name: str, line: Any) -> None:
        """Add a line to one of this process's notes, which lie beside the run folder."""
        with self.folder.with_name(f"{self.folder.name}-{name}-{self.rank}").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def work(self) -> int:
        """Train; the exit status of the command."""

        def collate(records: list, places: list | None) -> Batch:
            if places is not None:
                self.started("data")()
            return TASK.collate(records, places)

        made = copy(TASK)
        made.collate = collate
        data.load = lambda recipe: made
        run.draw_curve = lambda log, path: path.touch()  # nothing that a killed training could get wrong
        run.plan_steps = StepPlan  # without the steps that a copy would take to be measured
        if not self.job.get("completed"):
            train.complete_run = lambda folder, model: None
        observe(Loop, "step", self.started("step"), self.trained)
        observe(Loop, "evaluate", self.started("evaluation"))
        observe(
            CheckpointManager, "save", self.started("save"), lambda *_: self.write("times", ["saved", time.monotonic()])
        )
        observe(Checkpoints, "write", self.started("write"))
        self.started("run")()
        return cli.main(self.words)


def main(job: str) -> int:
    return Child(json.loads(job), int(os.environ.get("RANK", 0))).work()


def attempt(job: dict[str, Any]) -> int:
    """As a process that torchrun started, train, and die if this attempt should."""
    deaths = dict(enumerate(job["deaths"]))
    number = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    return Child({**job, "death": deaths.get(number, {})}, int(os.environ["RANK"])).work()


if __name__ == "__main__":
    sys.exit(attempt(json.loads(sys.argv[1])))
