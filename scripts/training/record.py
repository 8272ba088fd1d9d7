"""Record what a training was, on which machine, and what it took: time and energy."""

import json
import os
import platform
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from transformers import PreTrainedModel

from qkv.scripts.common.environment import commit, data_name, processor, versions, without_folder
from qkv.scripts.common.files import RECORD, write_atomically
from qkv.scripts.recipes.keys import flat
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.metrics import signatures
from qkv.scripts.tasks.task import Task
from qkv.scripts.training.stock_model import model_class

POWERCAP = Path("/sys/class/powercap")


@dataclass
class Clock:
    """Wall and CPU seconds since it was made; CPU seconds are those of all threads and of finished child processes.

    With `cpu=0.0` they are those of the whole process, start-up included.
    """

    wall: float = field(default_factory=time.perf_counter)
    cpu: float = field(default_factory=lambda: sum(os.times()[:4]))

    def read(self) -> dict[str, float]:
        """Return the seconds so far, to the tenth."""
        now = Clock()
        return {"wall_s": round(now.wall - self.wall, 1), "cpu_s": round(now.cpu - self.cpu, 1)}

    def add(self, earlier: dict[str, float]) -> None:
        """Count seconds from before it was made, too."""
        self.wall -= earlier["wall_s"]
        self.cpu -= earlier["cpu_s"]


class EnergyMeter:
    """Joules that the processors used since it was made, for whatever program; nothing where they cannot be read.

    The processors' RAPL counters of microjoules are read. `update` must be called every few minutes, as they wrap
    around. By hand, for codecarbon brings a dozen libraries, pandas among them, and guesses where it cannot measure.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.total = 0
        try:
            names = {
                path.parent: path.read_text().strip() for path in sorted((root or POWERCAP).glob("intel-rapl:*/name"))
            }
            # Beside the processors there may be their parts, and a counter of the whole machine, which includes them.
            self.names = {
                folder: name
                for folder, name in names.items()
                if folder.name.count(":") == 1 and name.startswith("package")
            }
            self.limits = self.read_counters("max_energy_range_uj")
            self.last = self.read_counters("energy_uj")
        except (OSError, ValueError):  # most systems let only root read them
            self.names = {}

    @classmethod
    def of(cls, accelerator: Accelerator) -> "EnergyMeter":
        """Measure a training; without counters where more than the processors of this machine works for it."""
        meter, processes = cls(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        if processes != accelerator.num_processes or accelerator.device.type != "cpu":
            meter.names = {}
        return meter

    def read_counters(self, file: str) -> dict[Path, int]:
        """Return the microjoules in a file of each counter."""
        return {folder: int((folder / file).read_text()) for folder in self.names}

    def update(self) -> None:
        """Read the counters, and add what was counted since the last time."""
        now = self.read_counters("energy_uj")
        self.total += sum((value - self.last[folder]) % self.limits[folder] for folder, value in now.items())
        self.last = now

    def read(self) -> dict[str, Any] | None:
        """Return the joules so far and the names of the counters; None when nothing was measured."""
        self.update()
        return {"training_j": round(self.total / 1e6, 1), "counters": list(self.names.values())} if self.names else None


def compiled_graphs() -> int:
    """Return how many graphs this process has compiled: a size that varies is a symbol from the second on."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def recipe_fields(recipe: Recipe) -> dict[str, Any]:
    """Return the fields of a recipe, without the folders of this machine."""
    fields = flat(recipe) | {"data": data_name(recipe.data.source)}
    for group, name in ((fields, "out"), (fields, "init"), (fields["text"], "tokenizer")):
        group[name] = without_folder(group[name]) if group[name] else group[name]
    return fields


def describe(recipe: Recipe, task: Task, model: PreTrainedModel, accelerator: Accelerator) -> dict[str, Any]:
    """Return the record of a run before it has results."""
    return {
        "recipe": recipe_fields(recipe) | {"architecture": model_class(recipe, model).__name__},
        "config": json.loads(model.config.to_json_string()),
        "parameters": model.num_parameters(),
        "task": describe_task(task),
        "signatures": signatures(task.metrics),
        "data": describe_data(task),
        "seed": recipe.seed,
        "device": device(accelerator),
        "versions": versions(),
        "commit": commit(),
    }


def describe_task(task: Task) -> dict[str, Any]:
    """Return what the task is, and, of own data, what the programs of the card ask about."""
    data = task.data
    facts = {"name": data.name, "title": data.title, "kind": task.kind, "source": data.source}
    facts |= {"usage": task.usage} if task.usage else {}
    if not data.report:
        return facts
    return facts | {"sample": task.sample()} | ({"dataset": re.split("[:@]", data.name)[0]} if data.source else {})


def describe_data(task: Task) -> dict[str, Any]:
    """Return the sizes of the data and their hash, and, of own data, how they were split and what is in the splits."""
    facts = {"sizes": task.sizes(), "sha256": task.fingerprint(), **task.data.report}
    if task.truncated:
        facts["truncated"] = task.truncated
    if task.data.report and "classes" in facts and task.kind != "object-detection":
        facts["majority"] = majority(facts["classes"])
    return facts


def majority(classes: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Return the most frequent class of the training, and its share of each split."""
    name = max(classes["train"], key=lambda each: classes["train"][each])
    return {"class": name, "share": {split: own.get(name, 0) / sum(own.values()) for split, own in classes.items()}}


def device(accelerator: Accelerator) -> dict[str, Any]:
    """Describe what the training runs on."""
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


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Write the record of a folder, whole or not at all."""
    write_atomically(folder / RECORD, json.dumps(record, indent=2) + "\n")


def read_record(folder: Path) -> dict[str, Any]:
    """Read the record of a folder."""
    record: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    return record
