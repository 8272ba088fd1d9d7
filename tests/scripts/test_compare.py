"""`qkv compare`: both models from each seed on the same data, and what is there already is not trained again."""

import json
from pathlib import Path

import pytest

from qkv.scripts import compare
from qkv.scripts.cli import main

SHORT = ["max_steps=2", "model.hidden_size=8", "model.num_hidden_layers=1"]


def test_the_record_of_ours_holds_the_figures_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compare, "complete", lambda finished: finished.save())
    words = ["digits", *SHORT, f"out={tmp_path}"]
    assert main(["train", "digits", *SHORT, "seed=5", f"out={tmp_path / 'qkv-5'}"]) == 0
    assert main(["compare", *words, "--seeds", "5"]) == 0
    assert "qkv-5 is finished, all 2 steps; nothing was trained" in capsys.readouterr().err
    records = {
        source: json.loads((tmp_path / f"{source}-5" / "record.json").read_text()) for source in ("qkv", "stock")
    }
    found = records["qkv"]["comparison"]
    assert found["seeds"] == [5] and list(found["models"]) == ["qkv", "stock"]
    assert found["models"]["stock"]["architecture"] == "ViTForImageClassification"
    for source, record in records.items():
        metrics = found["models"][source]["metrics"]
        assert metrics["test"]["accuracy"] == [record["metrics"]["test"]["accuracy"]]
        assert record["data"] == records["qkv"]["data"] and record["seed"] == 5
    assert "### Beside the stock model" in (tmp_path / "qkv-5" / "card.md").read_text()
