"""`qkv quickstart`: everything it promises, in a few steps; in full it is a slow test."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoModelForCausalLM, AutoModelForImageClassification

from qkv.scripts import quickstart
from qkv.scripts.cli import main
from qkv.scripts.common.inspector import Job, outputs
from qkv.scripts.publishing.card.card import make_card
from qkv.scripts.publishing.integrity.loading import Loaded
from qkv.scripts.publishing.integrity.manifest import identity
from qkv.scripts.training.record import Clock
from sine_waves import recordings

SHORT = ["max_steps=2", "model.hidden_size=8", "model.num_hidden_layers=2"]


def in_this_process(auto_class: type) -> Callable[[Sequence[Job]], list[Loaded]]:
    """What the fresh process does (tests/hub/test_hub.py starts it), without the time it takes to start."""

    def load(jobs: Sequence[Job]) -> list[Loaded]:
        (job,) = jobs
        return [Loaded({}, outputs(auto_class.from_pretrained(job.source), job.inputs))]

    return load


def test_it_leaves_everything_it_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(quickstart, "load_in_clean_process", in_this_process(AutoModelForImageClassification))
    folder = tmp_path / "run"
    assert main(["quickstart", "digits", *SHORT, f"out={folder}"]) == 0
    assert {path.name for path in folder.iterdir()} == {
        "record.json", "metrics.jsonl", "curve.png", "attention.png", "checkpoints", "README.md", "LICENSE",
        "config.json", "model.safetensors", "preprocessor_config.json", "qkv_manifest.json",
        "configuration_image_encoder.py", "modeling_image_encoder.py",
    }  # fmt: skip
    record = json.loads((folder / "record.json").read_text())
    assert record["reload"] == [*record["metrics"]]
    card = (folder / "README.md").read_text()
    assert card == str(make_card(record, digest=identity(folder))) and identity(folder) in card
    assert ModelCard.load(folder / "README.md").data.license == "apache-2.0"
    for picture in ("curve.png", "attention.png"):
        assert f"]({picture})" in card and (folder / picture).is_file()
    printed = capsys.readouterr().out
    assert all(row in printed for row in ("test logits, loaded without qkv", "equal bit by bit", "CPU seconds"))


def test_a_folder_that_loads_to_another_model_is_a_failure() -> None:
    expected = torch.tensor([0.0, 2.0, 1.0])
    quickstart.check_equal({"logits": expected.clone()}, {"logits": expected})
    with pytest.raises(RuntimeError, match="logits"):
        quickstart.check_equal({"logits": expected.nextafter(expected + 1)}, {"logits": expected})


TEXT = "model.hidden_size=16 model.num_hidden_layers=1 model.pattern=full text.made=60 text.evaluated=4 max_steps=2"
OTHER = " ".join(["holdout=0", *SHORT])
SLOW = [
    ("translate {text}", "tokenizer.json"),
    ("docs-mlm data=numbers {text}", "tokenizer.json"),
    ("spoken-digits data={sound} batch_size=4 {other}", "preprocessor_config.json alignment.png"),
    ("spoken-digits data={sound} batch_size=4 architecture=QkvAudioEncoderForCTC model.conv_strides=[2,1] {other}",
     "preprocessor_config.json"),
    ("shapes-captions text.made=40 {other}", "attention.png"),
    ("long-range text.made=40 text.symbols=4 text.length=32 {other}", "tokenizer.json"),
    ("shapes-detect text.made=20 text.evaluated=12 {other}", "objects.png queries.png"),
    ("fold-peptides text.made=40 text.evaluated=3 {other}", "structures.png"),
    ("fold-toy text.made=40 text.evaluated=3 {other}", "contacts.png"),
    ("facts-answers text.made=40 text.evaluated=12 {other}", "tokenizer.json"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "left"),
    [("copy text.symbols=8 {text}", "tokenizer.json"), *(pytest.param(*row, marks=pytest.mark.slow) for row in SLOW)],
)
def test_other_tasks_go_the_whole_way_too(
    words: str, left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if words.startswith("copy"):
        monkeypatch.setattr(quickstart, "load_in_clean_process", in_this_process(AutoModelForCausalLM))
    sound, run = recordings(tmp_path / "sound") if "sound" in words else None, tmp_path / "run"
    command = ["quickstart", *words.format(sound=sound, text=TEXT, other=OTHER).split(), f"out={run}"]
    assert main(command) == 0
    (run / "README.md").unlink()
    assert main(command) == 0  # not trained, but built anew
    record, card = json.loads((run / "record.json").read_text()), (run / "README.md").read_text()
    assert record["reload"] == ["test"] and "test" in record["metrics"]
    hub = {path.name for path in run.iterdir()}
    assert set(left.split()) <= hub and (sound is None or ("alignment.png" in hub) == ("alignment.png" in left))
    assert all(f"]({name})" in card for name in hub if ".png" in name)
    if words.startswith("translate"):
        assert record["signatures"]["bleu"].startswith("nrefs:1|")


@pytest.mark.slow
def test_the_whole_way_reaches_its_goal(tmp_path: Path) -> None:
    clock = Clock()  # the record's own counts what this process did before, too
    assert main(["quickstart", "digits", f"out={tmp_path / 'run'}"]) == 0
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["metrics"]["test"]["accuracy"] >= 0.97
    assert clock.read()["cpu_s"] <= 180
