"""The folder of a Space: its card, its requirements, and a program that names the model."""

from pathlib import Path

import gradio as gr
import pytest
import yaml

import qkv
import stock_folders
from qkv.scripts.cli import main
from qkv.scripts.prediction.source import open_source
from qkv.scripts.web_demo import space
from qkv.scripts.web_demo.space import write_space


def test_a_model_of_the_hub_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_source(str(stock_folders.bert(tmp_path / "run")))
    monkeypatch.setattr(space, "open_source", lambda *given, **named: opened)
    write_space('you/my"model', tmp_path / "space", revision="v1", trust_remote_code=True)
    assert {path.name for path in (tmp_path / "space").iterdir()} == {"README.md", "app.py", "requirements.txt"}
    program = (tmp_path / "space" / "app.py").read_text()
    compile(program, "app.py", "exec")
    assert """qkv.demo("you/my\\"model", revision='v1', trust_remote_code=True)""" in program
    card = yaml.safe_load((tmp_path / "space" / "README.md").read_text(encoding="utf-8").split("---\n")[1])
    assert (card["sdk"], card["sdk_version"], card["models"]) == ("gradio", gr.__version__, ['you/my"model'])
    assert f"qkv[demo]=={qkv.__version__}" in (tmp_path / "space" / "requirements.txt").read_text().splitlines()
    with pytest.raises(FileExistsError):
        write_space("you/other", tmp_path / "space")


def test_a_model_of_this_machine_has_to_be_published_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = stock_folders.bert(tmp_path / "run")
    assert main(["demo", str(folder), "--space", str(tmp_path / "space")]) == 1
    assert f"qkv publish {folder}" in capsys.readouterr().err and not (tmp_path / "space").exists()
