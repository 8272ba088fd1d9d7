"""The run folder: never written over, metrics line by line, a record that says where the numbers are from."""

import json
import os
import shlex
import subprocess
from pathlib import Path

import torch
from accelerate import Accelerator

import qkv
from qkv.scripts.recipes.schema import load
from qkv.scripts.tasks import registry as data
from qkv.scripts.training import record
from qkv.scripts.training.run import build


def test_metrics_are_lines(tmp_path: Path) -> None:
    record.log(tmp_path, step=1, loss=2.5)
    record.log(tmp_path, step=1, split="test", accuracy=0.5)
    assert record.read_log(tmp_path) == [{"step": 1, "loss": 2.5}, {"step": 1, "split": "test", "accuracy": 0.5}]


def test_a_record_is_replaced_whole(tmp_path: Path) -> None:
    record.write(tmp_path, {"a": 1})
    record.write(tmp_path, {"a": 2})
    assert json.loads((tmp_path / "record.json").read_text()) == {"a": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


def test_the_description_is_json_and_holds_what_the_numbers_depend_on() -> None:
    recipe = load("digits")
    task = data.load(recipe)
    model = build(recipe, task)
    facts = json.loads(json.dumps(record.describe(recipe, task, model, Accelerator(cpu=True))))
    assert facts["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert facts["data"] == {"sizes": task.sizes(), "sha256": task.fingerprint()}
    assert facts["versions"]["qkv"] == qkv.__version__ and facts["versions"]["torch"] == torch.__version__
    own = {name: facts["device"].pop(name) for name in ("name", "processor", "cores", "memory_gib")}
    assert facts["device"] == {"type": "cpu", "threads": torch.get_num_threads(), "processes": 1}
    assert own["name"] and own["cores"] == os.cpu_count() and own["memory_gib"] >= 1
    assert facts["recipe"]["learning_rate"] == recipe.learning_rate and facts["seed"] == recipe.seed


def test_a_clock_counts_cpu_seconds_of_children() -> None:
    clock = record.Clock()
    subprocess.run(["python3", "-c", "sum(range(50_000_000))"], check=True)
    times = clock.read()
    assert times["cpu_s"] > 0.1 and times["wall_s"] > 0.1
    assert record.Clock(cpu=0.0).read()["cpu_s"] > 1.0  # this process has imported torch


def test_places_on_this_machine_are_told_to_nobody(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    words = [
        f"data={tmp_path / 'letters'}",
        f"out={tmp_path / 'run'}",
        f"text.tokenizer={tmp_path / 'words'}",
        "seed=1",
    ]
    command = shlex.join(["qkv", "train", str(tmp_path / "mine.yaml"), *words])
    told = record.typed(command), json.dumps(record.fields(load("docs-lm", words)))
    assert told[0] == "qkv train mine.yaml data=letters out=run text.tokenizer=words seed=1"
    assert all(str(tmp_path) not in text for text in told) and '"data": "letters"' in told[1]
    assert (
        record.typed("qkv train docs-lm data=author/name:part@main") == "qkv train docs-lm data=author/name:part@main"
    )
