"""Timing: turns alternate, a difference stops it, and what is printed is ratios of the same turn."""

import json
from pathlib import Path

import pytest
import torch

import qkv
from qkv.scripts import benchmark
from qkv.scripts.cli import main
from qkv.scripts.publishing.export.folder import build_folder
from qkv.scripts.publishing.integrity.clean_process import Loaded


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    make = qkv.presets.gpt2
    monkeypatch.setattr(qkv.presets, "gpt2", lambda: make(hidden_size=8, num_hidden_layers=1, num_attention_heads=2))


def pretend(monkeypatch: pytest.MonkeyPatch, answers: dict[str, float]) -> list[str]:
    """Loads that take no time: remote ones twice as long as installed ones."""
    asked = []

    def load(folder: Path, auto_class: str, mode: str, home: Path) -> Loaded:
        asked.append(mode)
        seconds = {"first": {"installed": 1.0, "remote": 2.0}[mode], "again": 1.0}
        return Loaded({"seconds": seconds}, {"logits": torch.tensor(answers[mode])})

    monkeypatch.setattr(benchmark, "load", load)
    return asked


def test_ratios_are_of_the_same_turn(
    tiny: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = pretend(monkeypatch, {"installed": 0.5, "remote": 0.5})
    assert main(["benchmark", "--runs=2", f"--json={tmp_path / 'found.json'}"]) == 0
    assert asked == ["installed", "remote", "remote", "installed", "installed", "remote"]
    assert "2.00 (2.00 to 2.00)" in capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["remote over installed"]["first"] == [2.0, 2.0, 2.0] and len(found["seconds"]["remote"]) == 2


def test_different_answers_are_not_timed(
    tiny: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, {"installed": 0.5, "remote": 0.25})
    assert main(["benchmark", "--runs=1"]) == 1
    assert "there is nothing to time" in capsys.readouterr().err


def test_no_runs_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", "--runs=0"]) == 1
    assert "--runs=0 measures nothing" in capsys.readouterr().err


@pytest.mark.slow
def test_both_processes_load_the_same_model(tiny: None, tmp_path: Path) -> None:
    folder = build_folder(qkv.QkvDecoderForCausalLM(qkv.presets.gpt2()), tmp_path / "gpt2")
    found = [benchmark.load(folder, "AutoModelForCausalLM", mode, tmp_path) for mode in benchmark.MODES]
    assert torch.equal(found[0].outputs["logits"], found[1].outputs["logits"])
    assert all(lap.report["seconds"]["first"] > 0 for lap in found)
