"""A run from start to end on a tiny model: its files, its record and its repetition."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import AutoImageProcessor, AutoModelForImageClassification

import qkv
from locks import is_refused
from qkv.configuration import presets
from qkv.scripts.cli import main
from qkv.scripts.common import environment
from qkv.scripts.common.environment import public_command
from qkv.scripts.recipes.loading import load
from qkv.scripts.tasks import registry
from qkv.scripts.tasks.task import fingerprint_of
from qkv.scripts.training import record
from qkv.scripts.training.record import read_metrics, read_record
from qkv.scripts.training.resume import LOCK
from qkv.scripts.training.run import Run, advice_on_choice, build, train
from scale_worker import fresh_state

TINY = ["max_steps=6", "log_every=2", "eval_every=3", "warmup_steps=1", "holdout=0.2", "model.hidden_size=16",
        "model.num_hidden_layers=1"]  # fmt: skip


def run(folder: Path, *words: str) -> Run:
    return train(load("digits", [*TINY, f"out={folder}", *words]), "qkv train digits")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("run") / "out")


def test_folder_has_its_files(finished: Run) -> None:
    assert {path.name for path in finished.folder.iterdir()} == {
        "record.json", "metrics.jsonl", "curve.png", "checkpoints",
        "config.json", "model.safetensors", "preprocessor_config.json",
        "configuration_image_encoder.py", "modeling_image_encoder.py", "LICENSE",
    }  # fmt: skip
    lines = read_metrics(finished.folder)
    assert [line["step"] for line in lines if "split" not in line] == [2, 4, 6]
    assert [(line["step"], line["split"]) for line in lines if "split" in line] == [
        (3, "validation"), (6, "validation"), (6, "test"),
    ]  # fmt: skip
    assert {"step", "loss", "lr", "grad_norm", "samples"} <= set(lines[0])
    facts = read_record(finished.folder)
    assert lines[0]["samples"] == 64 and facts == finished.record and facts["command"] == "qkv train digits"
    last = {name: value for name, value in lines[-1].items() if name not in ("step", "split")}
    assert facts["metrics"]["test"] == last and facts["time"]["cpu_s"] >= facts["time"]["training_cpu_s"]


def test_saved_model_is_the_trained_one(finished: Run) -> None:
    model = AutoModelForImageClassification.from_pretrained(finished.folder).eval()
    split = finished.task.splits["test"]
    with torch.no_grad():
        logits = model(pixel_values=split.columns["pixel_values"]).logits
    right = (logits.argmax(-1) == split.columns["labels"]).double().mean().item()
    assert right == pytest.approx(finished.record["metrics"]["test"]["accuracy"], abs=1e-9)
    assert model.config.id2label[3] == "3"
    assert AutoImageProcessor.from_pretrained(finished.folder).size == {"height": 8, "width": 8}


def test_train_leaves_a_run_and_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["digits", "max_steps=2", "model.hidden_size=8", "model.num_hidden_layers=1", f"out={tmp_path / 'run'}"]
    assert main(["train", *words]) == 0
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    # Where on this machine is nobody's business.
    assert record["command"] == f"qkv train {' '.join(words[:-1])} out=run" and record["recipe"]["max_steps"] == 2
    printed, said = capsys.readouterr()
    assert said.splitlines()[-1].endswith(
        f"next: qkv evaluate {tmp_path / 'run'}, or qkv publish {tmp_path / 'run'} ./published"
    )
    assert f"{100 * record['metrics']['test']['accuracy']:.2f} %" in printed and f"{record['parameters']:,}" in printed


def test_folder_is_locked_until_the_run_is_complete(tmp_path: Path) -> None:
    words = [*TINY, f"out={tmp_path / 'run'}"]
    refused = []

    def complete(run: Run) -> None:
        refused.append(is_refused(run.folder / "checkpoints" / LOCK))

    for _ in range(2):  # the second finds it finished
        train(load("digits", words), "qkv train digits", complete=complete)
    assert refused == [True, True] and not is_refused(tmp_path / "run" / "checkpoints" / LOCK)


@pytest.mark.slow
def test_run_is_reproducible(finished: Run, tmp_path: Path) -> None:
    again, other = run(tmp_path / "again"), run(tmp_path / "other", "seed=1")
    assert read_metrics(again.folder) == read_metrics(finished.folder) != read_metrics(other.folder)


def test_preset_is_the_starting_point() -> None:
    chosen = load("digits", [*TINY, "preset=vit_base_16"])
    config = build(chosen, registry.load(chosen)).config
    assert (config.norm_eps, config.hidden_size, config.num_labels) == (presets.vit_base_16().norm_eps, 16, 10)
    assert config.norm_eps != type(config)().norm_eps


def test_bf16_trains_and_tensorboard_has_its_metrics(finished: Run, tmp_path: Path) -> None:
    with fresh_state():
        lower = run(tmp_path / "bf16", "precision=bf16", "tracker=tensorboard")
    expected, found = finished.record["metrics"]["test"]["loss"], lower.record["metrics"]["test"]
    assert found["loss"] != expected and found["loss"] == pytest.approx(expected, abs=0.05)
    events = EventAccumulator(str(tmp_path / "bf16" / "digits")).Reload()
    shown = {event.step: event.value for event in events.Scalars("train/loss")}
    lines = [line for line in read_metrics(lower.folder) if "split" not in line]
    assert shown == pytest.approx({line["step"]: line["loss"] for line in lines})
    assert events.Scalars("test/accuracy")[0].value == pytest.approx(found["accuracy"])


def test_finished_run_is_not_trained_again(finished: Run, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.folder.rglob("*")}
    again = run(finished.folder)
    said = capsys.readouterr().err
    assert str(finished.folder) in said and "max_steps=12" in said
    assert again.record == finished.record
    assert {path: path.stat().st_mtime_ns for path in finished.folder.rglob("*")} == before
    weights = finished.model.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in again.model.state_dict().items())
    with pytest.raises(ValueError, match="seed=0.*1"):
        run(finished.folder, "seed=1")


def test_card_of_a_finished_run_may_change(finished: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished.folder, folder)
    run(folder, "card.title=Mine: a title", "limits=None.")
    known = read_record(folder)
    assert (known["recipe"].pop("card")["title"], known["recipe"].pop("limits")) == ("Mine: a title", "None.")
    assert (
        known["recipe"].items() <= finished.record["recipe"].items() and known["metrics"] == finished.record["metrics"]
    )


def test_run_without_a_record_is_finished_from_its_last_checkpoint(finished: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished.folder, folder)
    (folder / "record.json").unlink()
    again = run(folder)
    assert again.record["metrics"] == finished.record["metrics"] and again.record["resumed"] == [6]
    assert (folder / "metrics.jsonl").read_bytes() == (finished.folder / "metrics.jsonl").read_bytes()
    state = json.loads((folder / "checkpoints" / "step-000006" / "state.json").read_text())
    assert again.record["time"]["training_wall_s"] >= state["time"]["wall_s"]


def test_nan_weights_are_refused(tmp_path: Path) -> None:
    """The step that makes them so is the last, so that no further loss tells it."""
    with pytest.raises(FloatingPointError, match="nan.*learning_rate"):
        run(tmp_path / "out", "max_steps=2", "learning_rate=1e30", "warmup_steps=0")
    assert not (tmp_path / "out" / "record.json").exists()


# The record -----------------------------------------------------------------------------------------------------------


def test_record_describes_model_data_versions_and_machine(finished: Run) -> None:
    facts, task = read_record(finished.folder), finished.task
    assert facts["parameters"] == sum(parameter.numel() for parameter in finished.model.parameters())
    assert {"sizes": task.sizes(), "sha256": fingerprint_of(task)}.items() <= facts["data"].items()
    assert facts["versions"]["qkv"] == qkv.__version__ and facts["versions"]["torch"] == torch.__version__
    own = {name: facts["device"].pop(name) for name in ("name", "processor", "cores", "memory_gib")}
    assert facts["device"] == {"type": "cpu", "threads": torch.get_num_threads(), "processes": 1}
    assert own["name"] and own["cores"] == os.cpu_count() and own["memory_gib"] >= 1
    assert facts["recipe"]["learning_rate"] == load("digits").optimization.learning_rate and facts["seed"] == 0


def test_processor_and_commit_are_those_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some CPU: fast\nflags\t: fpu\n")
    assert environment.processor(tmp_path / "cpuinfo") == "Some CPU: fast"
    assert environment.processor(tmp_path / "nothing") is None
    place = tmp_path / "environment" / "scripts" / "common" / "environment.py"
    place.parent.mkdir(parents=True)
    author = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init"], [*author, "commit", "--allow-empty", "--message=another"]):
        subprocess.run(["git", "-C", tmp_path, *words], check=True, capture_output=True)
    monkeypatch.setattr(environment, "__file__", str(place))
    assert environment.commit() is None  # not that of the repository around an environment
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "scripts" / "common" / "environment.py"))
    assert len(environment.commit().removesuffix(" with changes")) == 40


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


def test_the_choice_of_a_step_is_commented_where_it_is_weak() -> None:
    def advice(rows: int, watch: str, **classes: int) -> list[str]:
        return list(advice_on_choice({"validation": rows}, {"classes": {"train": classes}}, watch))

    assert advice(30, "validation accuracy", a=9, b=3) == advice(40, "validation f1_macro", a=90, b=3) == []
    assert "6 rows" in advice(6, "validation loss")[0]
    (unbalanced,) = advice(40, "validation accuracy", a=10, b=3)
    assert "3 to 10 rows" in unbalanced and "watch='validation f1_macro'" in unbalanced
