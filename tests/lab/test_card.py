"""`scripts/lab/card.py`: from a run folder or a record file to the card beside it."""

import shutil
from pathlib import Path

import pytest

from qkv.scripts.lab import card
from qkv.scripts.lab.__main__ import main

DIGITS = Path(__file__).resolve().parents[2] / "model_cards" / "digits"


@pytest.mark.parametrize("name", [".", "record.json"])
def test_the_card_is_written_beside_its_record(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(DIGITS, tmp_path, dirs_exist_ok=True)
    (tmp_path / "card.md").unlink()
    assert main(["card", str(tmp_path / name)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'card.md'}\n"
    assert (tmp_path / "card.md").read_text() == (DIGITS / "card.md").read_text()


def test_all_published_cards_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(card, "FOLDER", tmp_path)
    assert main(["card", "--all"]) == 1 and "there are no records" in capsys.readouterr().err
    for name in ("copy", "digits", "history"):
        shutil.copytree(DIGITS, tmp_path / name)
    assert main(["card", "--all"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'copy' / 'card.md'}\n{tmp_path / 'digits' / 'card.md'}\n"


@pytest.mark.parametrize("words", [[], ["x.json", "--all"]])
def test_either_a_record_or_all(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["card", *words]) == 1
    assert capsys.readouterr().err == "qkv: card takes either a record or --all; name a run folder or a record file\n"
