"""`scripts/lab/compare.py`: both models from each seed on the same data, and what is there already is not trained again."""

import json
from pathlib import Path

import pytest

from qkv.scripts import cli
from qkv.scripts.lab import compare
from qkv.scripts.lab.__main__ import main
from qkv.scripts.publishing.export.run_folder import write_run_card
from qkv.scripts.training.run import Run

SHORT = ["max_steps=2", "model.hidden_size=8", "model.num_hidden_layers=1"]


def described(finished: Run) -> None:
    """Complete a run without the figures and the process without qkv."""
    finished.save()
    write_run_card(finished.folder)


@pytest.mark.slow
def test_the_record_of_ours_holds_the_figures_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compare, "complete", described)
    words = ["digits", *SHORT, f"out={tmp_path}", "--seeds", "5", "--also", "narrow", "model.num_attention_heads=2"]
    assert cli.main(["train", "digits", *SHORT, "seed=5", f"out={tmp_path / 'qkv-5'}"]) == 0
    assert main(["compare", *words]) == 0
    printed = capsys.readouterr()
    assert "qkv-5 is finished, all 2 steps; nothing was trained" in printed.err
    said = [line for line in printed.err.splitlines() if " of 3 trainings, in " in line]
    assert said == [
        f"qkv: {name}, seed 5: {number} of 3 trainings, in {tmp_path / name}-5"
        for number, name in enumerate(("narrow", "stock", "qkv"), 1)
    ]
    assert printed.out.splitlines()[-1] == f"the card: {tmp_path / 'qkv-5' / 'README.md'}"
    found = json.loads((tmp_path / "qkv-5" / "record.json").read_text())["comparison"]
    assert found["seeds"] == [5] and list(found["models"]) == ["qkv", "stock", "narrow"]
    assert found["models"]["stock"]["architecture"] == "ViTForImageClassification"
    records = {name: json.loads((tmp_path / f"{name}-5" / "record.json").read_text()) for name in found["models"]}
    assert records["narrow"]["recipe"]["model"]["num_attention_heads"] == 2
    for name, record in records.items():
        accuracy = found["models"][name]["metrics"]["test"]["accuracy"]
        assert accuracy == [record["metrics"]["test"]["accuracy"]]
        assert record["data"] == records["qkv"]["data"] and record["seed"] == 5
    assert "### Beside the stock model" in (tmp_path / "qkv-5" / "README.md").read_text()
