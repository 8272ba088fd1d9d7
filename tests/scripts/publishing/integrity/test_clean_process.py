"""The clean process: nothing of our environment reaches it, and its failures are told. Loads: tests/hub/test_hub.py."""

from pathlib import Path

import pytest
import torch

from qkv.scripts.common.inspector import Job
from qkv.scripts.publishing.integrity import clean_process
from qkv.scripts.publishing.integrity.clean_process import clean_environment, load_in_clean_process


def test_the_environment_hides_where_our_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setenv("HF_HUB_CACHE", "/ours")
    monkeypatch.setenv("KEPT", "1")
    found = clean_environment(tmp_path)
    assert "PYTHONPATH" not in found and "HF_HUB_CACHE" not in found and found["KEPT"] == "1"
    assert found["HF_HOME"].startswith(str(tmp_path)) and found["HF_HUB_OFFLINE"] == "1"


def test_a_job_arrives_whole_with_full_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That the real program loads a model with it: tests/scripts/test_verify.py."""
    echo = tmp_path / "echo.py"
    echo.write_text(
        "import pathlib, shutil, sys\nfor folder in map(pathlib.Path, sys.argv[4:]):\n"
        "    shutil.copy(folder / 'job.json', folder / 'report.json')\n"
        "    shutil.copy(folder / 'inputs', folder / 'outputs') if (folder / 'inputs').exists() else None"
    )
    monkeypatch.setattr(clean_process, "PROGRAM", echo)
    monkeypatch.chdir(tmp_path)
    inputs = {"x": torch.ones(2, 3).t()}
    full = Job(Path("hub"), "AutoModel", inputs, "main", {"dtype": "bfloat16"}, pipeline="t", example=Path("a.png"))
    first, second = load_in_clean_process([full, Job("alice/x", "AutoModel", remote=False)])
    assert torch.equal(first.outputs["x"], inputs["x"]) and second.outputs == {}
    places = {"source": str(tmp_path / "hub"), "example": str(tmp_path / "a.png"), "inputs": None}
    assert first.report == vars(full) | places
    assert second.report == vars(Job("alice/x", "AutoModel", remote=False))


@pytest.mark.parametrize(("end", "words"), [("'no such luck'", "no such luck"), ("1", "without a message")])
def test_the_last_line_of_a_failed_process_is_told(
    end: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text(f"raise SystemExit({end})")
    monkeypatch.setattr(clean_process, "PROGRAM", broken)
    with pytest.raises(RuntimeError, match=words):
        load_in_clean_process([])
