"""The folder of a run is the model that it trained: it loads, verifies and is published by its own name."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageClassification, pipeline

import qkv
import tiny
from published import forget_releases
from qkv.scripts.cli import main
from qkv.scripts.common.inspector import Job, outputs
from qkv.scripts.publishing.export.run_folder import write_run_card
from qkv.scripts.publishing.export.tested_releases import UNSTATED, spelled
from qkv.scripts.publishing.integrity.clean_process import load_in_clean_process
from qkv.scripts.publishing.integrity.files import file_rows
from qkv.scripts.publishing.integrity.manifest import IntegrityError, identity, read_manifest
from qkv.scripts.publishing.integrity.verification import expectation_findings

SHORT = ["digits", "max_steps=2", "model.hidden_size=8", "model.num_hidden_layers=1"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    assert main(["train", *SHORT, f"out={folder}"]) == 0
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


IMAGE = {"pixel_values": torch.linspace(0, 1, 192).view(1, 3, 8, 8)}


def logits(folder: Path) -> torch.Tensor:
    return outputs(AutoModelForImageClassification.from_pretrained(folder), IMAGE)["logits"]


def findings(folder: Path) -> list[str]:
    """What differs from the manifest, before anything is loaded."""
    return [line for row in file_rows(folder, read_manifest(folder)) for line in row.findings]


def test_it_and_what_was_saved_load_with_and_without_qkv(trained: Path, tmp_path: Path) -> None:
    picture = tmp_path / "eight.png"
    Image.effect_noise((8, 8), 60).save(picture)
    auto = "AutoModelForImageClassification"
    model = qkv.QkvDecoderForCausalLM(tiny.decoder()).eval()
    model.save_pretrained(tmp_path / "saved")
    tokens = {"input_ids": torch.arange(6)[None]}
    run = Job(trained, auto, IMAGE, pipeline="image-classification", example=picture)
    loaded, saved = load_in_clean_process([run, Job(tmp_path / "saved", "AutoModelForCausalLM", tokens)])
    assert torch.equal(saved.outputs["logits"], outputs(model, tokens)["logits"])
    assert torch.equal(loaded.outputs["logits"], logits(trained))
    assert loaded.answer == pipeline("image-classification", model=str(trained))(str(picture))


def test_what_the_training_keeps_beside_the_model_is_no_part_of_it(run: Path) -> None:
    assert findings(run) == []
    (run / "metrics.jsonl").write_text("")
    (run / "notes.csv").write_text("a,b\n")
    shutil.rmtree(run / "checkpoints")
    assert findings(run) == []
    (run / "modeling_other.py").write_text("")
    (run / "vocab.json").write_text("{}")
    assert findings(run) == ["vocab.json is not in the manifest", "modeling_other.py is not in the manifest"]


def test_a_run_is_published_under_its_identity_with_its_card(run: Path, tmp_path: Path) -> None:
    published = qkv.publish(run, tmp_path / "hub")
    assert published.identity == identity(run) and not published.as_built
    names = {path.name for path in published.folder.iterdir()}
    assert {"README.md", "curve.png", "model.safetensors"} <= names
    assert names.isdisjoint({"record.json", "metrics.jsonl", "checkpoints"})
    assert expectation_findings(read_manifest(published.folder), run) == []


def test_the_card_is_written_again_and_the_folder_stays_whole(run: Path) -> None:
    record = json.loads((run / "record.json").read_text())
    record["recipe"]["title"] = "Another title"
    (run / "record.json").write_text(json.dumps(record))
    before = identity(run)
    assert write_run_card(run) == run / "README.md"
    assert "Another title" in (run / "README.md").read_text() and before in (run / "README.md").read_text()
    assert identity(run) == before and findings(run) == []
    forget_releases(run)
    write_run_card(run)
    assert f"tested with transformers {spelled(UNSTATED)}." in (run / "README.md").read_text() and findings(run) == []


def test_the_runs_of_an_earlier_qkv_are_taken_too(run: Path, tmp_path: Path) -> None:
    before = logits(run)
    names = ("config.json", "model.safetensors", "preprocessor_config.json")
    (run / "model").mkdir()
    for path in sorted(run.iterdir()):
        if path.name in names:
            path.rename(run / "model" / path.name)
        elif path.suffix in (".py", ".md") or path.name in ("LICENSE", "qkv_manifest.json"):
            path.unlink()
    with pytest.raises(IntegrityError, match="has no qkv_manifest.json"):
        qkv.verify(run)
    assert torch.equal(logits(qkv.publish(run, tmp_path / "hub").folder), before)
    assert main(["train", *SHORT, "seed=1", f"init={run}", f"out={tmp_path / 'next'}"]) == 0
    assert main(["train", *SHORT, "seed=1", f"init={run / 'model'}", f"out={tmp_path / 'same'}"]) == 0
    one, other = (logits(tmp_path / name) for name in ("next", "same"))
    assert torch.equal(one, other) and not torch.equal(one, before)
    assert main(["train", *SHORT, f"out={run}"]) == 0 and torch.equal(logits(run / "model"), before)
