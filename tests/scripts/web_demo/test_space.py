"""The folder of a Space: its header, its program, and a model that loads from it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import qkv
import stock_folders
from checkout import PYTHONPATH
from qkv.scripts.web_demo import space
from qkv.scripts.web_demo.space import write_space
from web_demo.client import get, post

Runs = Callable[[str], Path]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder with what a run has beside its model."""
    folder = stock_folders.bert(tmp_path / "run")
    recipe = {
        "title": "A title",
        "text": {"column": "text", "label": "label", "length": 32},
        "data": {"source": "a.csv"},
    }
    (folder / "record.json").write_text(json.dumps({"recipe": recipe, "command": f"qkv train {tmp_path}/a.csv"}))
    for name in ("modeling_encoder.py", "qkv_manifest.json"):
        (folder / name).write_text("{}")
    return folder


def test_a_folder_that_a_space_runs(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "space"
    write_space(str(run), folder)
    assert {path.name for path in folder.iterdir()} == {
        "README.md",
        "app.py",
        "Dockerfile",
        "requirements.txt",
        "model",
    }
    header = yaml.safe_load((folder / "README.md").read_text(encoding="utf-8").split("---\n")[1])
    assert header["sdk"] == "docker" and header["app_port"] == 7860 and header["title"] == "A title"
    assert f"qkv[train,vision,audio]=={qkv.__version__}" in (folder / "requirements.txt").read_text().splitlines()
    record = json.loads((folder / "model" / "record.json").read_text())
    assert record == {"recipe": {"title": "A title", "text": {"column": "text", "label": "label"}}}
    assert not any(path.suffix == ".py" or "manifest" in path.name for path in (folder / "model").iterdir())
    with pytest.raises(FileExistsError):
        write_space(str(run), folder)


@pytest.mark.slow
def test_its_program_serves_the_model(run_of: Runs, tmp_path: Path) -> None:
    folder, run = tmp_path / "space", run_of("classes")
    write_space(str(run), folder)
    program = (folder / "app.py").read_text()
    assert 'host="0.0.0.0", port=7860).wait()' in program
    with qkv.demo(str(run), port=0) as page:  # which of the two has the port, when both are asked
        expected = post(f"{page.url}/predict", {"text": "warm"})[1]["scores"]
        port = page.server_address[1]
    (folder / "app.py").write_text(program.replace("port=7860", f"port={port}"))
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "SPACE_HOST": "you-name.hf.space", "HF_HUB_OFFLINE": "1"}
    with subprocess.Popen([sys.executable, "app.py"], cwd=folder, env=environment) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(url, process)
            headers = {"Content-Type": "application/json", "Origin": "https://you-name.hf.space"}
            answer = post(f"{url}/predict", {"text": "warm"}, headers)[1]
            assert answer["scores"] == expected
            assert post(f"{url}/attention", {"page": answer["attention"]}, headers)[0] == 200
            assert b"model: QkvEncoderForSequenceClassification" in get(f"{url}/{answer['attention']}")[2]
            assert json.loads(get(f"{url}/facts")[2])["name"] == "model"
        finally:
            process.kill()


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until a server answers."""
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        try:
            get(f"{url}/facts")
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"no server: {process.poll()}")


def test_a_model_of_the_hub_is_named(native: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = space.open_source(str(native))
    monkeypatch.setattr(space, "open_source", lambda *given, **named: opened)
    write_space('you/my"model', tmp_path / "space", revision="v1", trust_remote_code=True)
    program = (tmp_path / "space" / "app.py").read_text()
    compile(program, "app.py", "exec")
    assert """qkv.demo("you/my\\"model", revision='v1', trust_remote_code=True, host=""" in program
    header = yaml.safe_load((tmp_path / "space" / "README.md").read_text(encoding="utf-8").split("---\n")[1])
    assert header["models"] == ['you/my"model'] and not (tmp_path / "space" / "model").exists()


def test_what_may_not_be_published_is_refused(run: Path, tmp_path: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"note": "/home/somebody/private/data.csv"}))
    with pytest.raises(ValueError, match="may not be published: .*config.json") as raised:
        write_space(str(run), tmp_path / "space")
    assert "qkv publish" in str(raised.value) and not (tmp_path / "space").exists()


def test_a_secret_in_a_record_is_refused(run: Path, tmp_path: Path) -> None:
    record = json.loads((run / "record.json").read_text())
    record["recipe"]["limits"] = "see /home/somebody/notes.txt"
    (run / "record.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match="its record holds"):
        write_space(str(run), tmp_path / "space")
