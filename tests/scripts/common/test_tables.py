"""The final table says what the record says."""

from pathlib import Path

import pytest

from qkv.scripts.common.tables import files, markdown_table, measures, show, shown

RECORD = {
    "metrics": {"test": {"loss": 0.12345, "accuracy": 0.9}},
    "baselines": {"SVM": {"test": {"accuracy": 0.8}}},
    "parameters": 12345,
    "time": {"cpu_s": 10.4, "wall_s": 20.0, "training_cpu_s": 5.0, "training_wall_s": 6.0},
}


def test_measures_stand_beside_what_they_are_compared_with() -> None:
    rows = measures(RECORD)
    assert list(rows)[:3] == ["test loss", "test accuracy", "test accuracy, SVM"]
    assert (
        rows["test loss"] == "0.1235" and rows["test accuracy"] == "90.00 %" and rows["test accuracy, SVM"] == "80.00 %"
    )
    assert rows["parameters"] == "12,345" and "test logits, loaded without qkv" not in rows


def test_a_reload_is_reported_when_there_was_one() -> None:
    rows = measures({**RECORD, "reload": {"test": {"accuracy": 0.9}}})
    assert rows["test accuracy, loaded without qkv"] == "90.00 %"
    assert rows["test logits, loaded without qkv"] == "equal bit by bit"


def test_paths_are_shown_in_full(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    (folder / "record.json").touch()
    (folder / ".hidden").touch()
    show("title", files(folder))
    printed = capsys.readouterr().out
    assert "title" in printed and ".hidden" not in printed
    letters = "".join(part.split("│")[2] for part in printed.splitlines() if part.count("│") == 3)
    assert str(folder / "record.json") in letters.replace(" ", "")


def test_cards_show_shares_in_percent() -> None:
    assert markdown_table(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
    assert (shown("loss", 0.5), shown("accuracy", 0.5), shown("accuracy", None)) == ("0.5000", "50.00 %", "")
    assert shown("perplexity", 35.5) == "35.5000"
