"""The folder of a Space: its card, its program, and a model that loads from it."""

import json
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


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder with the files of a run beside its model."""
    folder = stock_folders.bert(tmp_path / "run")
    recipe = {"title": "A title", "text": {"column": "text", "length": 32}, "data": {"source": "a.csv"}}
    (folder / "record.json").write_text(json.dumps({"recipe": recipe, "command": f"qkv train {tmp_path}/a.csv"}))
    for name in ("modeling_encoder.py", "qkv_manifest.json"):
        (folder / name).write_text("{}")
    return folder


def card_of(folder: Path) -> dict[str, object]:
    return yaml.safe_load((folder / "README.md").read_text(encoding="utf-8").split("---\n")[1])


def test_a_local_model_is_copied(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "space"
    assert main(["demo", str(run), "--space", str(folder)]) == 0
    assert {path.name for path in folder.iterdir()} == {"README.md", "app.py", "requirements.txt", "model"}
    card = card_of(folder)
    assert (card["sdk"], card["sdk_version"], card["title"]) == ("gradio", gr.__version__, "A title")
    assert f"qkv[demo]=={qkv.__version__}" in (folder / "requirements.txt").read_text().splitlines()
    record = json.loads((folder / "model" / "record.json").read_text())
    assert record == {"recipe": {"title": "A title", "text": {"column": "text"}}}
    assert not any(path.suffix == ".py" or "manifest" in path.name for path in (folder / "model").iterdir())
    assert open_source(str(folder / "model")).task == "text-classification"
    assert 'qkv.demo("model").block_thread()' in (folder / "app.py").read_text()
    with pytest.raises(FileExistsError):
        write_space(str(run), folder)


def test_a_model_of_the_hub_is_named(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_source(str(run))
    monkeypatch.setattr(space, "open_source", lambda *given, **named: opened)
    write_space('you/my"model', tmp_path / "space", revision="v1", trust_remote_code=True)
    program = (tmp_path / "space" / "app.py").read_text()
    compile(program, "app.py", "exec")
    assert """qkv.demo("you/my\\"model", revision='v1', trust_remote_code=True)""" in program
    assert card_of(tmp_path / "space")["models"] == ['you/my"model'] and not (tmp_path / "space" / "model").exists()


@pytest.mark.parametrize(("file", "place"), [("config.json", "note"), ("record.json", "recipe.limits")])
def test_a_path_of_this_machine_is_refused(run: Path, tmp_path: Path, file: str, place: str) -> None:
    content = json.loads((run / file).read_text())
    inner, _, last = place.rpartition(".")
    (content[inner] if inner else content)[last] = "/home/somebody/private/data.csv"
    (run / file).write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"config\.json|README\.md"):
        write_space(str(run), tmp_path / "space")
    assert not (tmp_path / "space").exists()
