"""`qkv demo`: a page is served, or the folder of a Space is written; a mistake is one sentence."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import stock_folders
from checkout import PYTHONPATH
from qkv.scripts.cli import main
from web_demo.client import get, post


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stock_folders.bert(tmp_path_factory.mktemp("models") / "bert")


@pytest.mark.slow
def test_a_page_is_served_until_it_is_interrupted(model: Path) -> None:
    words = [sys.executable, "-m", "qkv.scripts.cli", "demo", str(model), "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            said = next(line for line in process.stderr if "http://" in line)
            url = said.split()[1]
            assert url.startswith("http://127.0.0.1:") and b"<title>" in get(url)[2]
            assert post(f"{url}/predict", {"text": "warm"})[0] == 200
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()


def test_the_folder_of_a_space(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", str(model), "--space", str(tmp_path / "space")]) == 0
    assert (tmp_path / "space" / "app.py").is_file()
    assert f"hf upload you/name {tmp_path / 'space'} --type space" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{folder}"], "holds no config.json; give a run such as runs/first"),
        (["{model}", "--port", "70000"], "port=70000 is not one of 0 to 65535"),
        (["{model}", "--host", "192.0.2.1", "--port", "0"], "give another --port or --host"),
        (["{model}", "--space", "{model}"], "is not empty"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: list[str], message: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"model": model, "folder": tmp_path}
    assert main(["demo", *(word.format(**places) for word in words)]) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.endswith("…")]
    assert len(lines) == 1 and message in lines[0]
