"""`qkv quickstart`: everything it promises, in a few steps; in full it is a slow test."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoModelForImageClassification

from qkv.scripts import quickstart
from qkv.scripts.cli import main
from qkv.scripts.publishing.card import make_card
from qkv.scripts.publishing.manifest import identity
from qkv.scripts.publishing.reload import Found, Job, outputs
from qkv.scripts.training.record import Clock

SHORT = ["max_steps=2", "model.hidden_size=8", "model.num_hidden_layers=2"]


def in_this_process(jobs: Sequence[Job]) -> list[Found]:
    """What the fresh process does (tests/test_hub.py starts it), without the time it takes to start."""
    found = []
    for job in jobs:
        model = AutoModelForImageClassification.from_pretrained(job.source)
        answers = outputs(model, job.inputs)
        assert job.example.is_file()
        found.append(Found(answers, [{"label": model.config.id2label[int(answers["logits"][0].argmax())]}]))
    return found


def test_it_leaves_everything_it_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(quickstart, "reload", in_this_process)
    folder = tmp_path / "run"
    assert main(["quickstart", "digits", *SHORT, f"out={folder}"]) == 0
    assert {path.name for path in folder.iterdir()} == {
        "record.json", "metrics.jsonl", "curve.png", "attention.png", "card.md", "model", "hub",
    }  # fmt: skip
    record = json.loads((folder / "record.json").read_text())
    assert record["reload"]["test"]["accuracy"] == pytest.approx(record["metrics"]["test"]["accuracy"], abs=1e-12)
    assert record["baselines"]["SVM (scikit-learn)"]["test"]["accuracy"] > 0.98
    card = (folder / "hub" / "README.md").read_text()
    assert card == str(make_card(record, digest=identity(folder / "hub"))) and identity(folder / "hub") in card
    assert ModelCard.load(folder / "hub" / "README.md").data.license == "apache-2.0"
    for picture in ("curve.png", "attention.png"):
        assert f"]({picture})" in (folder / "card.md").read_text()
        assert (folder / "hub" / picture).read_bytes() == (folder / picture).read_bytes()
    printed = capsys.readouterr().out
    for row in (
        "test accuracy, loaded without qkv",
        "test accuracy, SVM (scikit-learn)",
        "equal bit by bit",
        "CPU seconds",
    ):
        assert row in printed


def test_a_folder_that_loads_to_another_model_is_a_failure() -> None:
    expected, labels = torch.tensor([[0.0, 2.0, 1.0]]), ["a", "b", "c"]
    quickstart.refuse_difference(
        Found({"logits": expected.clone()}, [{"label": "b"}, {"label": "c"}]), expected, labels
    )
    with pytest.raises(RuntimeError, match="the Hub folder loads to a model with other logits, by up to 2"):
        quickstart.refuse_difference(
            Found({"logits": expected.nextafter(expected + 1)}, [{"label": "b"}]), expected, labels
        )
    with pytest.raises(RuntimeError, match="the pipeline calls the first image 'c', the model 'b'"):
        quickstart.refuse_difference(Found({"logits": expected.clone()}, [{"label": "c"}]), expected, labels)


def test_pictures_come_back_from_pixels() -> None:
    levels = torch.randint(0, 256, (3, 4, 5))
    image = quickstart.to_image(levels / 127.5 - 1)
    assert image.size == (5, 4) and image.getpixel((2, 1)) == tuple(levels[:, 1, 2].tolist())


@pytest.mark.slow
def test_the_whole_way_reaches_its_goal(tmp_path: Path) -> None:
    clock = Clock()  # the record's own counts what this process did before, too
    assert main(["quickstart", "digits", f"out={tmp_path / 'run'}"]) == 0
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["metrics"]["test"]["accuracy"] >= 0.97
    assert clock.read()["cpu_s"] <= 180
