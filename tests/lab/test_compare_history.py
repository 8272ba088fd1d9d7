"""`scripts/lab/compare_history.py`: a record, pictures and a page; the page again from the record; wrong words in a sentence."""

import json
from pathlib import Path

import pytest

from qkv.scripts.lab import compare_history
from qkv.scripts.lab.__main__ import main
from qkv.scripts.lab.history import measure
from qkv.scripts.lab.history.figures import FIGURES
from qkv.scripts.lab.history.models import ALL


@pytest.mark.slow
def test_everything_is_measured_drawn_and_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compare_history, "draw", lambda record, folder: (folder / "drawn").touch())
    words = ["compare-history", "--quick", "--out", str(tmp_path / "h")]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert "not measured" in shown.out and "training: 4 models" in shown.err
    assert {path.name for path in (tmp_path / "h").iterdir()} == {"record.json", "README.md", "PROMISES.md", "drawn"}
    record = json.loads((tmp_path / "h" / "record.json").read_text())
    assert set(record["quality"]) == set(ALL) and record["size"]["seconds"] == measure.SIZES["quick"].seconds
    assert all(found["cpu_s"] >= measure.SIZES["quick"].seconds for found in record["training"].values())
    text = (tmp_path / "h" / "README.md").read_text()
    assert all(f"({name})" in text for name in FIGURES) and str(tmp_path) not in text
    # The page follows from the file alone, and another run would overwrite what is there.
    (tmp_path / "h" / "README.md").unlink()
    assert main([*words, "--page"]) == 0
    assert (tmp_path / "h" / "README.md").read_text() == text
    assert main([*words, "--steps"]) == 0
    again = json.loads((tmp_path / "h" / "record.json").read_text())
    assert again.pop("steps")["models"] != record.pop("steps")["models"] and again == record
    assert main([*words, "--lengths"]) == 0
    again = json.loads((tmp_path / "h" / "record.json").read_text())
    assert again["lengths"]["stacks"].keys() == record["lengths"]["stacks"].keys()
    assert again["lengths"]["stacks"] != record["lengths"]["stacks"] and again["layers"] == record["layers"]
    capsys.readouterr()
    assert main(words) == 1
    assert "has a record already; give --page to write its page again, or another --out" in capsys.readouterr().err


def test_what_cannot_be_done_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, expected in {
        ("--page",): f"there is no record at {tmp_path / 'record.json'}; ",
        ("--seed=-1",): "--seed=-1 is below 0",
    }.items():
        assert main(["compare-history", "--out", str(tmp_path), *words]) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"qkv: {expected}") and error.count("\n") == 1
    (tmp_path / "record.json").write_text("{}")
    assert main(["compare-history", "--out", str(tmp_path), "--page"]) == 1
    assert "is no record of compare-history; give its --out" in capsys.readouterr().err
