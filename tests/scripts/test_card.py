"""`qkv card`: from a run folder or a record file to the card beside it."""

import shutil
from pathlib import Path

import pytest

from qkv.scripts.cli import main

CARDS = Path(__file__).resolve().parents[2] / "model_cards"


@pytest.mark.parametrize(("record", "card"), [("record.json", "card.md"), ("digits.json", "digits.md")])
def test_the_card_is_written_beside_its_record(
    tmp_path: Path, record: str, card: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(CARDS / "digits.json", tmp_path / record)
    source = tmp_path if record == "record.json" else tmp_path / record
    assert main(["card", str(source)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / card}\n"
    assert (tmp_path / card).read_text() == (CARDS / "digits.md").read_text()
