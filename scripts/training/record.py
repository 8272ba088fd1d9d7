"""What does a training leave behind? A folder with its metrics, its record, and everything needed to repeat it."""

import json
import os
import platform
import shlex
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from transformers import PreTrainedModel

from qkv.scripts.common.environment import commit, processor, versions
from qkv.scripts.common.files import write_atomically
from qkv.scripts.data.loading import called
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.task import Task
from qkv.scripts.training.initialization import kind_of


@dataclass
class Clock:
    """Wall and CPU seconds since it was made; CPU seconds are those of all threads and of finished child processes.

    With `cpu=0.0` they are those of the whole process, start-up included.
    """

    wall: float = field(default_factory=time.perf_counter)
    cpu: float = field(default_factory=lambda: sum(os.times()[:4]))

    def read(self) -> dict[str, float]:
        """Seconds so far, to the tenth."""
        now = Clock()
        return {"wall_s": round(now.wall - self.wall, 1), "cpu_s": round(now.cpu - self.cpu, 1)}

    def forward(self, earlier: dict[str, float]) -> None:
        """Count seconds from before it was made, too."""
        self.wall -= earlier["wall_s"]
        self.cpu -= earlier["cpu_s"]


def log(folder: Path, **line: Any) -> None:
    """Add one line to the run's metrics."""
    # In one piece, or a training that is killed leaves half a line.
    with (folder / "metrics.jsonl").open("ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The lines of the run's metrics, oldest first."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def placeless(path: str) -> str:
    """A file or folder of this machine by its name alone: its place is nobody's business, and changes no number."""
    return Path(path).resolve().name if Path(path).is_absolute() or ".." in Path(path).parts else path


def typed(words: str) -> str:
    """A command as others may read it."""
    pairs = [word.rpartition("=") for word in shlex.split(words)]
    known = ((key, equals, called(value) if key == "data" else value) for key, equals, value in pairs)
    return shlex.join(key + equals + placeless(value) for key, equals, value in known)


def fields(recipe: Recipe) -> dict[str, Any]:
    """A recipe as others may read it."""
    found = asdict(recipe) | {"data": called(recipe.data)}
    for group, name in ((found, "out"), (found, "init"), (found["text"], "tokenizer")):
        group[name] = placeless(group[name]) if group[name] else group[name]
    return found


def describe(recipe: Recipe, task: Task, model: PreTrainedModel, accelerator: Accelerator) -> dict[str, Any]:
    """The record of a run before it has results."""
    return {
        "recipe": fields(recipe) | {"architecture": kind_of(recipe, model).__name__},
        "config": json.loads(model.config.to_json_string()),
        "parameters": model.num_parameters(),
        "task": {"name": task.name, "title": task.title, "kind": task.kind, "source": task.source}
        | ({"usage": task.usage} if task.usage else {}),
        "signatures": task.signatures,
        "data": {"sizes": task.sizes(), "sha256": task.fingerprint()},
        "seed": recipe.seed,
        "device": device(accelerator),
        "versions": versions(),
        "commit": commit(),
    }


def write(folder: Path, record: dict[str, Any]) -> None:
    """Write the record, whole or not at all."""
    write_atomically(folder / "record.json", json.dumps(record, indent=2) + "\n")


def device(accelerator: Accelerator) -> dict[str, Any]:
    """What the training ran on."""
    kind = accelerator.device.type
    name = torch.cuda.get_device_name() if kind == "cuda" else platform.processor() or platform.machine()
    return {
        "type": kind,
        "name": name,
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "threads": torch.get_num_threads(),
        "processes": accelerator.num_processes,
    }
