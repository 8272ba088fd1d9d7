"""What is disturbed: trainings of every recipe and engine, sweeps, publications, conversions, predictions, evaluations.

A case is run in a folder of its own, where it leaves the same files each time, but for what names a time.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image
from safetensors.torch import load_file

import own_runs
import stock_folders
from processes import launch
from qkv.scripts.recipes import loading
from qkv.scripts.training.checkpoint import first_damage
from recipes import tiny_words, write_data

STEPS = ["max_steps=6", "save_every=2", "eval_every=3", "log_every=2", "keep=2"]
DIGITS = [
    "train", "digits", "out=out", *STEPS, "warmup_steps=2", "batch_size=8", "model.hidden_size=16",
    "model.num_hidden_layers=1", "model.residual_dropout=0.2",
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A command, in how many processes, and what it needs in its folder before."""

    name: str
    words: tuple[str, ...] = ()
    processes: int = 1
    prepare: Callable[[Path], None] = lambda folder: None

    def run(self, folder: Path, **disturbance: Any) -> list[int]:
        """How the command ended in a folder, with what is to happen to it."""
        if not folder.is_dir():
            folder.mkdir(parents=True)
            self.prepare(folder)
        job = {"folder": str(folder), "words": self.words, **disturbance}
        log = folder.with_name(f"{folder.name}-log")
        for old in log.parent.glob(f"{log.name}-*"):
            old.unlink()
        variables = {"ACCELERATE_USE_CPU": "true"} if self.processes > 1 else {}
        return launch("command_jobs", [json.dumps(job)], log, self.processes, **variables)

    def said(self, folder: Path, number: int = 0) -> str:
        """What a process of the last run said."""
        return folder.with_name(f"{folder.name}-log-{number}").read_text()


@dataclass
class Whole:
    """What a case leaves where nothing happens to it, how often it writes and how long it takes."""

    left: dict[str, str]
    writes: int
    seconds: float


@dataclass
class Scene:
    """A folder with data, a trained run and stock models, and all cases that read them."""

    folder: Path
    wholes: dict[tuple[str, bool], Whole] = field(default_factory=dict)

    def __post_init__(self) -> None:
        write_data(self.folder)
        self.table = own_runs.data("classes", self.folder / "table")
        self.stock = stock_folders.gpt2(self.folder / "stock")
        self.cases = {case.name: case for case in (*self.trainings(), *self.others())}
        self.trained, self.converted = self.folder / "trained" / "out", self.folder / "converted" / "out"
        for name, folder in (("own table", self.trained.parent), ("convert", self.converted.parent)):
            assert self.cases[name].run(folder) == [0], self.cases[name].said(folder)

    def trainings(self) -> Iterator[Case]:
        """Every recipe, and every engine and way of saving on one of them."""
        for name in loading.names():
            words = [word for word in tiny_words(name, self.folder) if not word.startswith("max_steps=")]
            yield Case(name, ("train", name, "out=out", *words, *STEPS))
        alone = {
            "saved by the clock": ["save_every=null", "save_minutes=0.0001"],
            "the best is kept": ["watch=validation loss", "holdout=0.1", "keep=1", "eval_every=2"],
            "accumulated": ["accumulate=2"],
        }
        for name, words in alone.items():
            yield Case(name, (*DIGITS, *words))
        yield Case("two processes, DDP", tuple(DIGITS), 2)
        yield Case("two processes, FSDP2", (*DIGITS, "strategy=fsdp2"), 2)
        yield Case("own table", ("train", str(self.table), "out=out", *own_runs.KINDS["classes"], *STEPS))
        yield Case("more steps", (*DIGITS, "max_steps=9"), prepare=self.finished)

    def others(self) -> Iterator[Case]:
        """What writes beside trainings."""
        run, table = str(self.folder / "trained" / "out"), str(self.table)
        yield Case("sweep", ("sweep", *DIGITS[1:], "max_steps=4", "lr=1e-3,1e-2"))
        yield Case("publish", ("publish", run, "./out"))
        converted = str(self.folder / "converted" / "out")
        yield Case("publish --native", ("publish", converted, "./out", "--native"))
        yield Case("convert", ("convert", str(self.stock), "out", "--check"))
        yield Case("convert back", ("convert", converted, "out"))
        yield Case("predict", ("predict", run, table, "--out", "out.csv"))
        yield Case("evaluate", ("evaluate", run, table, "--out", "out"))

    def finished(self, folder: Path) -> None:
        """Put a finished training there, which is to take more steps."""
        source = self.folder / "finished"
        if not source.is_dir():
            assert Case("finished", tuple(DIGITS)).run(source) == [0]
        shutil.copytree(source, folder, dirs_exist_ok=True)

    def whole(self, case: Case, *, growing: bool = False) -> Whole:
        """That of a case; where only writes that take room are counted, that number."""
        if (case.name, growing) not in self.wholes:
            folder = self.folder / f"whole-{len(self.wholes)}"
            note = folder.with_name(f"{folder.name}-note")
            counted = {"full_from": 10**9} if growing else {}
            statuses = case.run(folder, note=str(note), **counted)
            assert statuses == [0] * case.processes, case.said(folder)
            told = json.loads(note.read_text())
            self.wholes[case.name, growing] = Whole(left(folder), told["writes"], told["seconds"])
        return self.wholes[case.name, growing]


# What names a time, and what is beside the result.
TIMED = ("record.json", "README.md", "qkv_manifest.json", "sweep.db", "curve.png")


def left(folder: Path) -> dict[str, str]:
    """Digests of what a case leaves: models, metrics, tables, cards, the last state with its random numbers.

    Of a training the card and its manifest name times, and so do the records.
    """
    trained = any(folder.rglob("record.json"))
    steps = sorted(folder.rglob("checkpoints/step-*"))
    last = {max(step for step in steps if step.parent == each.parent) for each in steps}
    found = {}
    for path in sorted(folder.rglob("*")):
        checkpoint = next((step for step in steps if step in path.parents), None)
        skipped = (trained and path.name in TIMED) or path.name == ".lock"
        if not path.is_file() or skipped or (checkpoint and (checkpoint not in last or path.suffix == ".json")):
            continue
        found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def leftovers(folder: Path) -> list[str]:
    """What should not be there when a command is done: hidden and partial files, and folders that are not empty."""
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if ((path.name.startswith(".") and path.name != ".lock") or path.name.endswith(".partial"))
        and (path.is_file() or any(path.iterdir()))
    ]


def read(path: Path) -> None:
    """Read a file as its ending says; an error where a part of it is missing."""
    readers: dict[str, Callable[[], Any]] = {
        ".safetensors": lambda: load_file(path),
        ".json": lambda: json.loads(path.read_text()),
        ".jsonl": lambda: [json.loads(line) for line in path.read_text().splitlines()],
        ".py": lambda: compile(path.read_text(), str(path), "exec"),
        ".png": lambda: Image.open(path).load(),
    }
    readers.get(path.suffix, path.read_bytes)()
    if path.name in ("LICENSE", "out.csv") and not path.read_text().endswith("\n"):
        raise ValueError("the end is missing")


def halves(folder: Path) -> list[str]:
    """Files that have their names and not all of their content."""
    found = []
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder)
        hidden = any(part.startswith(".") or part.endswith(".partial") for part in inner.parts)
        if hidden:
            continue
        if path.is_dir() and path.name.startswith("step-") and (damage := first_damage(path)):
            found.append(f"{inner}: {damage}")
        if path.is_file():
            try:
                read(path)
            except Exception as error:
                found.append(f"{inner}: {error}")
    return found
