"""The record of a run: its fields and its clock, without folders of this machine."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import torch
from accelerate import Accelerator

import qkv
from qkv.scripts.common.environment import public_command
from qkv.scripts.recipes.loading import load
from qkv.scripts.tasks import registry as data
from qkv.scripts.tasks.task import fingerprint_of
from qkv.scripts.training import record
from qkv.scripts.training.run import build


def test_description_is_json() -> None:
    recipe = load("digits")
    task = data.load(recipe)
    model = build(recipe, task)
    facts = json.loads(json.dumps(record.describe(recipe, task, model, Accelerator(cpu=True))))
    assert facts["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert facts["data"] == {"sizes": task.sizes(), "sha256": fingerprint_of(task)}
    assert facts["versions"]["qkv"] == qkv.__version__ and facts["versions"]["torch"] == torch.__version__
    own = {name: facts["device"].pop(name) for name in ("name", "processor", "cores", "memory_gib")}
    assert facts["device"] == {"type": "cpu", "threads": torch.get_num_threads(), "processes": 1}
    assert own["name"] and own["cores"] == os.cpu_count() and own["memory_gib"] >= 1
    assert facts["recipe"]["learning_rate"] == recipe.optimization.learning_rate and facts["seed"] == recipe.seed


def test_most_frequent_class_has_its_share_of_each_split() -> None:
    counts = {"train": {"a": 1, "b": 3}, "test": {"a": 4, "b": 1}, "validation": {"a": 2}}
    assert record.majority(counts) == {"class": "b", "share": {"train": 0.75, "test": 0.2, "validation": 0.0}}


def test_clock_counts_cpu_seconds_of_children() -> None:
    clock = record.Clock()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.2: pass"], check=True)
    times = clock.read()
    assert times["cpu_s"] > 0.1 and times["wall_s"] > 0.1
    assert record.Clock(cpu=0.0).read()["cpu_s"] > 1.0  # this process has imported torch


def test_record_has_no_folders_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    paths = {"data": "letters", "out": "run", "text.tokenizer": "words"}
    words = [*(f"{key}={tmp_path / name}" for key, name in paths.items()), "seed=1"]
    command = shlex.join(["qkv", "train", str(tmp_path / "mine.yaml"), *words])
    told = public_command(command), json.dumps(record.recipe_fields(load("docs-lm", words)))
    assert told[0] == "qkv train mine.yaml data=letters out=run text.tokenizer=words seed=1"
    assert all(str(tmp_path) not in text for text in told) and '"data": "letters"' in told[1]
    on_hub = "qkv train docs-lm data=author/name:part@main"
    assert public_command(on_hub) == on_hub
