"""Trainings that die: `main` is that of one process of a training, whose rank comes from the environment.

It notes the places of the endless order that each step trained on. As a program it is a process of torchrun.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import torch

import checkout  # noqa: F401  makes qkv importable
from qkv.scripts import cli, train
from qkv.scripts.data.examples import Batch
from qkv.scripts.recipes.loading import load
from qkv.scripts.tasks import registry
from qkv.scripts.tasks.task import Task
from qkv.scripts.training import run
from qkv.scripts.training.checkpoint import Checkpoints
from qkv.scripts.training.loop import Loop
from qkv.scripts.training.resume import CheckpointManager

WORDS = [
    "digits", "max_steps=12", "batch_size=8", "warmup_steps=2", "save_every=3", "eval_every=4", "log_every=2", "average=2",
    "model.hidden_size=16", "model.num_hidden_layers=1", "model.residual_dropout=0.2",
]  # fmt: skip
# Made once for all that are forked.
TASK = registry.load(load(WORDS[0], WORDS[1:]))


class Child:
    """One process of a training, which dies in the call that its job names."""

    def __init__(self, job: dict[str, Any], rank: int) -> None:
        self.job, self.folder, self.rank = job, Path(job["folder"]), rank
        self.death = job.get("death") if job.get("death", {}).get("rank") == rank else None
        self.calls: dict[str, int] = {}

    def started(self, what: str) -> None:
        """Count a call, and die in the one that is named, by SIGKILL or another signal."""
        self.calls[what] = self.calls.get(what, 0) + 1
        if self.death and (what, self.calls[what]) == (self.death["in"], self.death["call"]):
            os.kill(os.getpid(), self.death.get("signal", signal.SIGKILL))

    def observe(self, owner: Any, name: str, what: str, after: Callable[..., None] = lambda *found: None) -> None:
        """Die in a method, or call a function after it."""
        original = getattr(owner, name)

        def observed(*arguments: Any, **options: Any) -> Any:
            self.started(what)
            found = original(*arguments, **options)
            after(*arguments)
            return found

        setattr(owner, name, observed)

    def note(self, loop: Loop, batches: list[Batch]) -> None:
        """Note the places of a step in a file beside the run folder."""
        places = [place for batch in batches for place in batch["_places"].tolist()]
        with self.folder.with_name(f"{self.folder.name}-seen-{self.rank}").open("a") as file:
            file.write(json.dumps([loop.done + 1, places]) + "\n")

    def task(self) -> Task:
        """The digits with the place of each."""

        def collate(records: list, places: list | None) -> Batch:
            if places is None:
                return TASK.collate(records, places)
            self.started("data")
            return {**TASK.collate(records, places), "_places": torch.tensor(places)}

        made = copy(TASK)
        made.collate = collate
        return made

    def work(self) -> int:
        """Train; the exit status of the command."""
        registry.load = lambda recipe: self.task()
        run.draw_curve = lambda log, path, kept: path.touch()  # which no kill can harm
        train.complete_run = lambda folder, model: None
        self.observe(Loop, "step", "step", self.note)
        self.observe(Loop, "evaluate", "evaluation")
        self.observe(CheckpointManager, "save", "save")
        self.observe(Checkpoints, "save", "write")
        out = [f"out={self.folder}"] if self.job.get("out", True) else []
        return cli.main(["train", *WORDS, *out, *self.job.get("words", [])])


def main(job: str) -> int:
    return Child(json.loads(job), int(os.environ.get("RANK", 0))).work()


def attempt(job: dict[str, Any]) -> int:
    """Train as a process of torchrun, and die if this attempt should."""
    deaths = dict(enumerate(job["deaths"]))
    number = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    return Child({**job, "death": deaths.get(number, {})}, int(os.environ["RANK"])).work()


if __name__ == "__main__":
    sys.exit(attempt(json.loads(sys.argv[1])))
