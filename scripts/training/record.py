"""Record a training: its recipe, config and data, the machine and time."""

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
from qkv.scripts.data.splits.seen import HASHES
from qkv.scripts.data.tokenization import truncated_sentence
from qkv.scripts.recipes.keys import flat
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.metrics import signatures
from qkv.scripts.tasks.task import Task, fingerprint_of
from qkv.scripts.training.distributed import model_class

METRICS = "metrics.jsonl"


@dataclass
class Clock:
    """Wall and CPU seconds since its start, finished child processes included; `cpu=0.0` counts the whole process."""

    wall: float = field(default_factory=time.perf_counter)
    cpu: float = field(default_factory=lambda: sum(os.times()[:4]))

    def read(self) -> dict[str, float]:
        """Return the seconds so far, to the tenth."""
        now = Clock()
        return {"wall_s": round(now.wall - self.wall, 1), "cpu_s": round(now.cpu - self.cpu, 1)}

    def add(self, earlier: dict[str, float]) -> None:
        """Add the seconds of an earlier clock."""
        self.wall -= earlier["wall_s"]
        self.cpu -= earlier["cpu_s"]


def recipe_fields(recipe: Recipe) -> dict[str, Any]:
    """Return the fields of a recipe, without the folders of this machine."""
    fields = flat(recipe) | {"data": data_name(recipe.data.source)}
    for group, name in ((fields, "out"), (fields, "init"), (fields["text"], "tokenizer")):
        group[name] = without_folder(group[name]) if group[name] else group[name]
    return fields


def describe(recipe: Recipe, task: Task, model: PreTrainedModel, accelerator: Accelerator) -> dict[str, Any]:
    """Return the record of a run without results."""
    return {
        "recipe": recipe_fields(recipe) | {"architecture": model_class(model).__name__},
        "config": json.loads(model.config.to_json_string()),
        "parameters": model.num_parameters(),
        "task": describe_task(task),
        "signatures": signatures(task.metrics),
        "data": describe_data(task, recipe),
        "seed": recipe.seed,
        "device": device(accelerator),
        "versions": versions(),
        "commit": commit(),
    }


def describe_task(task: Task) -> dict[str, Any]:
    """Return the facts of the task, and for your own data a sample for the programs of the card."""
    data = task.data
    facts = {"name": data.name, "title": data.title, "kind": task.kind, "source": data.source}
    facts |= {"usage": task.usage} if task.usage else {}
    if not data.report:
        return facts
    return facts | {"sample": task.sample()} | ({"dataset": re.split("[:@]", data.name)[0]} if data.source else {})


def read_lines(task: Task, recipe: Recipe) -> dict[str, str]:
    """Return the table of what was read of own data, and how often the training sees it; empty for example data."""
    if not task.data.report:
        return {}
    facts, plan, cut = {"sizes": task.sizes(), **task.data.report}, recipe.optimization, task.truncated
    lines = task.data.read.lines(facts, task.data.invalid_records.summary()["reasons"], truncated_sentence(cut))
    if task.mixture:
        rates = {name: f"{100 * rate:.3g} %" for name, rate in task.mixture.rates.items()}
        lines["mixing rates"] = ", ".join(f"{name} {rate}" for name, rate in rates.items())
    rows = facts["sizes"].get("train")
    epochs = f", {plan.max_steps * plan.batch_size / rows:.3g} epochs" if rows else ""
    return {**lines, "training": f"{plan.max_steps:,} steps of {plan.batch_size}{epochs}"}


def describe_data(task: Task, recipe: Recipe) -> dict[str, Any]:
    """Return the sizes and the hash of the data, and for your own data what was read of them and how they are split."""
    facts = {"sizes": task.sizes(), "sha256": fingerprint_of(task), **task.data.report}
    if read := read_lines(task, recipe):
        facts["read"] = read
    if task.mixture:
        facts["mixing"] = task.mixture.rates
    if task.truncated:
        facts["truncated"] = task.truncated
    has_one = task.kind != "object-detection" and "multi_label" not in task.metrics
    if task.data.report and "classes" in facts and has_one:
        facts["majority"] = majority(facts["classes"])
    facts.pop(HASHES, None)
    return facts


def majority(classes: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Return the most frequent class of the training, and its share of each split."""
    name = max(classes["train"], key=lambda each: classes["train"][each])
    return {"class": name, "share": {split: own.get(name, 0) / sum(own.values()) for split, own in classes.items()}}


def device(accelerator: Accelerator) -> dict[str, Any]:
    """Describe the machine and its part in the training."""
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


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Read the logged metrics of a run, oldest first."""
    return [json.loads(line) for line in (folder / METRICS).read_text(encoding="utf-8").splitlines()]
