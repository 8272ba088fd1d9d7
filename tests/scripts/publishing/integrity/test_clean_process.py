"""The fresh process: nothing of ours reaches it, and its failures are told. That it loads: tests/test_hub.py."""

from pathlib import Path

import pytest
import torch

from qkv.scripts.publishing.integrity import clean_process as module
from qkv.scripts.publishing.integrity.clean_process import Job, reload, strange_environment


def test_the_environment_hides_where_our_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setenv("HF_HUB_CACHE", "/ours")
    monkeypatch.setenv("KEPT", "1")
    found = strange_environment(tmp_path)
    assert "PYTHONPATH" not in found and "HF_HUB_CACHE" not in found and found["KEPT"] == "1"
    assert found["HF_HOME"].startswith(str(tmp_path)) and found["HF_HUB_OFFLINE"] == "1"


def test_orders_name_files_by_full_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = Job(Path("hub"), "AutoModel", {"x": torch.ones(1)}, again=True, pipeline="t", example=Path("a.png"))
    order = job.order(Path("place"))
    assert order["source"] == str(tmp_path / "hub") and order["example"] == str(tmp_path / "a.png")
    always = {"source", "inputs", "outputs", "auto_class", "options"}
    assert set(order) == always | {"copy", "example", "answer", "pipeline"}
    assert set(Job(Path("hub"), "AutoModel", {}).order(Path("other"))) == always
    assert Job(Path("hub"), "AutoModel", {}, pipeline="t", example="a text").order(Path("third"))["example"] == "a text"


def test_a_failure_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('no such luck')")
    monkeypatch.setattr(module, "CONSUMER", broken)
    with pytest.raises(RuntimeError, match="loading without qkv failed: no such luck"):
        reload([])
