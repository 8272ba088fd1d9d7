"""Trainings that die: a process that has imported everything once, and forks a child for each process of a training.

It reads a job from each line of its standard input and answers with a line: how each process ended. Children write
down which places of the endless order each step trained on, and when what happened in them.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import conftest  # noqa: F401  makes the checkout importable
import torch

from processes import free_port
from qkv.scripts.cli import main
from qkv.scripts.data.examples import Batch
from qkv.scripts.recipes.loading import load
from qkv.scripts.tasks import registry as data
from qkv.scripts.tasks.task import Task
from qkv.scripts.training import run
from qkv.scripts.training.checkpoint import Checkpoints
from qkv.scripts.training.loop import Loop
from qkv.scripts.training.resume import CheckpointManager

WORDS = [
    "digits", "max_steps=12", "batch_size=8", "warmup_steps=2", "save_every=3", "eval_every=4", "log_every=2",
    "model.hidden_size=16", "model.num_hidden_layers=1", "model.residual_dropout=0.2",
]  # fmt: skip
# Seconds that the processes of a training have to end after one was killed; launchers give them some, too.
GRACE = 20


@cache
def loaded() -> Task:
    """The digits with the place of each, made once for all children."""
    task = data.load(load(WORDS[0], WORDS[1:]))

    def collate(records: list, places: list | None) -> Batch:
        batch = task.collate(records, places)
        return batch if places is None else {**batch, "_places": torch.tensor(places)}

    made = copy(task)
    made.collate = collate
    return made


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
        self.folder, self.rank = Path(job["folder"]), rank
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
        task = loaded()

        def collate(records: list, places: list | None) -> Batch:
            if places is not None:
                self.started("data")()
            return task.collate(records, places)

        made = copy(task)
        made.collate = collate
        data.load = lambda recipe: made
        run.draw_curve = lambda log, path: path.touch()  # nothing that a killed training could get wrong
        observe(Loop, "step", self.started("step"), self.trained)
        observe(Loop, "evaluate", self.started("evaluation"))
        observe(
            CheckpointManager, "save", self.started("save"), lambda *_: self.write("times", ["saved", time.monotonic()])
        )
        observe(Checkpoints, "write", self.started("write"))
        self.started("run")()
        return main(self.words)


def start(job: dict[str, Any], rank: int, port: int) -> int:
    """Fork a process of a training."""
    child = os.fork()
    if child:
        return child
    world = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": job["processes"], "MASTER_ADDR": "127.0.0.1"}
    if job["processes"] > 1:
        os.environ.update({name: str(value) for name, value in {**world, "MASTER_PORT": port}.items()})
    os.environ["ACCELERATE_USE_CPU"] = "true"
    status = 99
    try:
        log = os.open(f"{job['folder']}-log-{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(log, stream)
        status = Child(job, rank).work()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def launch(job: dict[str, Any]) -> list[int]:
    """Start the processes of a training; how each ended, as subprocess has it."""
    port = free_port()
    children = [start(job, rank, port) for rank in range(job["processes"])]
    found: dict[int, int] = {}
    deadline = None
    while len(found) < len(children):
        child, status = os.waitpid(-1, os.WNOHANG)
        if child:
            found[child] = os.waitstatus_to_exitcode(status)
            deadline = deadline or (time.monotonic() + GRACE if found[child] else None)
        elif deadline and time.monotonic() > deadline:
            for late in set(children) - set(found):
                os.kill(late, signal.SIGKILL)
        time.sleep(0.005)
    return [found[child] for child in children]


def attempt(job: dict[str, Any]) -> int:
    """As a process that torchrun started, train, and die if this attempt should."""
    deaths = dict(enumerate(job["deaths"]))
    number = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    return Child({**job, "death": deaths.get(number, {})}, int(os.environ["RANK"])).work()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(attempt(json.loads(sys.argv[1])))
    loaded()
    for line in sys.stdin:
        print(json.dumps(launch(json.loads(line))), flush=True)
