"""A run from start to end on a tiny model: its files, its repetition, and mistakes that are refused before it."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import AutoImageProcessor, AutoModelForImageClassification

from locks import is_refused
from qkv.scripts.recipes import loading as recipe
from qkv.scripts.training.record import read_metrics, read_record
from qkv.scripts.training.resume import LOCK
from qkv.scripts.training.run import Run, train
from scale_worker import fresh_state

TINY = ["max_steps=6", "log_every=2", "eval_every=3", "warmup_steps=1", "holdout=0.2", "model.hidden_size=16",
        "model.num_hidden_layers=1"]  # fmt: skip


def run(folder: Path, *words: str) -> Run:
    return train(recipe.load("digits", [*TINY, f"out={folder}", *words]), "qkv train digits")


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


def test_folder_is_locked_until_the_run_is_complete(tmp_path: Path) -> None:
    words = [*TINY, f"out={tmp_path / 'run'}"]
    refused = []

    def complete(run: Run) -> None:
        refused.append(is_refused(run.folder / "checkpoints" / LOCK))

    for _ in range(2):  # the second finds it finished
        train(recipe.load("digits", words), "qkv train digits", complete=complete)
    assert refused == [True, True] and not is_refused(tmp_path / "run" / "checkpoints" / LOCK)


def test_run_is_reproducible(finished: Run, tmp_path: Path) -> None:
    again, other = run(tmp_path / "again"), run(tmp_path / "other", "seed=1")
    assert read_metrics(again.folder) == read_metrics(finished.folder) != read_metrics(other.folder)


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


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("tracker=tensorbord", "tracker='tensorbord'.*'tensorboard'"),
        ("holdout=1.0", "holdout=1.0"),
        ("architecture=QkvImageEncoderForImageClasification", "'QkvImageEncoderForImageClassification'"),
        ("model.hiden_size=8", r"model\.hiden_size.*model\.hidden_size"),
        ("model.position=ropee", "'rope'"),
        ("batch_size=30 accumulate=4", "batch_size=30.*accumulate=4"),
        ("preset=vit_base", "'vit_base'.*'vit_base_16'"),
        ("preset=gpt2 model={}", "preset='gpt2'.*QkvDecoderConfig.*QkvImageEncoderForImageClassification"),
        ("model_source=stock", r"model_source=stock.*qkv\.scripts\.lab compare"),
    ],
)
def test_mistakes_are_refused_before_anything_is_written(tmp_path: Path, word: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "out", *word.split())
    assert not (tmp_path / "out").exists()


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
