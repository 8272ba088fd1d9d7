"""`qkv train`: the words reach the training, and its results the screen."""

import json
from pathlib import Path

import pytest

from qkv.scripts.cli import main


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


def test_a_folder_in_use_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").touch()
    assert main(["train", "digits", "max_steps=2", f"out={tmp_path}"]) == 1
    assert capsys.readouterr().err == f"qkv: {tmp_path} is not empty; give another out=, or remove it\n"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
