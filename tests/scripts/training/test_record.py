"""The record of a run: its fields, its clock, and the energy of the processors."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator

import qkv
from qkv.scripts.common.environment import public_command
from qkv.scripts.recipes.loading import load
from qkv.scripts.tasks import registry as data
from qkv.scripts.tasks.task import fingerprint_of
from qkv.scripts.training import record
from qkv.scripts.training.record import EnergyMeter
from qkv.scripts.training.run import build


def test_record_is_replaced_whole(tmp_path: Path) -> None:
    record.write_record(tmp_path, {"a": 1})
    record.write_record(tmp_path, {"a": 2})
    assert json.loads((tmp_path / "record.json").read_text()) == {"a": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


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
    words = [
        f"data={tmp_path / 'letters'}",
        f"out={tmp_path / 'run'}",
        f"text.tokenizer={tmp_path / 'words'}",
        "seed=1",
    ]
    command = shlex.join(["qkv", "train", str(tmp_path / "mine.yaml"), *words])
    told = public_command(command), json.dumps(record.recipe_fields(load("docs-lm", words)))
    assert told[0] == "qkv train mine.yaml data=letters out=run text.tokenizer=words seed=1"
    assert all(str(tmp_path) not in text for text in told) and '"data": "letters"' in told[1]
    assert (
        public_command("qkv train docs-lm data=author/name:part@main") == "qkv train docs-lm data=author/name:part@main"
    )


def write_counter(root: Path, folder: str, name: str, value: int) -> None:
    """Set a counter as Linux shows it."""
    (root / folder).mkdir(parents=True, exist_ok=True)
    for file, text in {"name": name, "energy_uj": value, "max_energy_range_uj": 1_000_000_000}.items():
        (root / folder / file).write_text(f"{text}\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Counters of two processors, of a part of the first, and of the whole machine."""
    write_counter(tmp_path, "intel-rapl:0", "package-0", 999_000_000)
    write_counter(tmp_path, "intel-rapl:1", "package-1", 5)
    write_counter(tmp_path, "intel-rapl:2", "psys", 7)
    write_counter(tmp_path, "intel-rapl:0:0", "core", 9)
    return tmp_path


def meter(root: Path, device: str = "cpu", processes: int = 1) -> EnergyMeter:
    return EnergyMeter(SimpleNamespace(num_processes=processes, device=SimpleNamespace(type=device)), root)


def test_energy_of_processors_is_added_up(root: Path) -> None:
    energy = meter(root)
    for value in (1_000_000, 999_000_000, 3_000_000):  # twice past its end
        write_counter(root, "intel-rapl:0", "package-0", value)
        energy.update()
    write_counter(root, "intel-rapl:1", "package-1", 2_000_005)
    write_counter(root, "intel-rapl:2", "psys", 900_000_000)
    write_counter(root, "intel-rapl:0:0", "core", 900_000_000)
    assert energy.read() == {"training_j": 2 + 998 + 4 + 2, "counters": ["package-0", "package-1"]}


def test_energy_is_none_where_it_cannot_be_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert meter(root / "nothing").read() is None and meter(root, "cuda").read() is None
    monkeypatch.setitem(os.environ, "LOCAL_WORLD_SIZE", "2")
    assert meter(root, processes=2).read() is not None and meter(root, processes=4).read() is None
    (root / "intel-rapl:0" / "energy_uj").unlink()  # only root may read most
    assert meter(root, processes=2).read() is None
