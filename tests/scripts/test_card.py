"""`qkv card`: from a run folder or a record file to the card beside it."""

import shutil
from pathlib import Path

import pytest

from qkv.scripts import card
from qkv.scripts.cli import main

CARDS = Path(__file__).resolve().parents[2] / "model_cards"
PUBLISHED = (CARDS / "digits.md").read_text()


def lay(record: Path) -> str:
    """Copy a record with its pictures, beside it in a run folder; how the card then begins the address of one."""
    shutil.copy(CARDS / "digits.json", record)
    folder = record.parent if record.name == "record.json" else record.with_suffix("")
    shutil.copytree(CARDS / "digits", folder, dirs_exist_ok=True)
    return "(" if folder == record.parent else f"({folder.name}/"


@pytest.mark.parametrize(("record", "expected"), [("record.json", "card.md"), ("digits.json", "digits.md")])
def test_the_card_is_written_beside_its_record(
    tmp_path: Path, record: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures = lay(tmp_path / record)
    source = tmp_path if record == "record.json" else tmp_path / record
    assert main(["card", str(source)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / expected}\n"
    assert (tmp_path / expected).read_text() == PUBLISHED.replace("(digits/", pictures)


def test_all_published_cards_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(card, "FOLDER", tmp_path)
    assert main(["card", "--all"]) == 1
    assert "there are no records to write all cards from; they are in a checkout" in capsys.readouterr().err
    for name in ("a", "b"):
        lay(tmp_path / f"{name}.json")
    assert main(["card", "--all"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'a.md'}\n{tmp_path / 'b.md'}\n"
    for name in ("a", "b"):
        assert (tmp_path / f"{name}.md").read_text() == PUBLISHED.replace("(digits/", f"({name}/")


@pytest.mark.parametrize("words", [[], ["x.json", "--all"]])
def test_either_a_record_or_all(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["card", *words]) == 1
    assert capsys.readouterr().err == "qkv: card takes either a record or --all; name a run folder or a record file\n"


def test_a_record_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["card", str(tmp_path)]) == 1
    assert f"there is no record at {tmp_path / 'record.json'}; give a run folder" in capsys.readouterr().err
