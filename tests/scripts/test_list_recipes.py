"""`qkv recipes`: every recipe with its model and data, and the figures of its committed card."""

import json
from pathlib import Path

import pytest

from qkv.scripts.cli import main
from qkv.scripts.common.tables import scaled
from qkv.scripts.list_recipes import row
from qkv.scripts.recipes import loading
from qkv.scripts.recipes.loading import load, names, read_card

CARDS = Path(__file__).parents[2] / "model_cards"


def test_every_recipe_is_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and set(names()) <= {line.split()[0] for line in lines if line[:1].strip()}


@pytest.mark.parametrize("name", names())
def test_figures_are_those_of_the_card(name: str) -> None:
    path = CARDS / name / "record.json"
    cells = row(load(name), read_card(name))
    if not path.is_file():
        assert (cells["size"], cells["test"], cells["min"]) == ("-", "-", "-")
        return
    record = json.loads(path.read_text())
    assert cells["size"] == scaled(record["parameters"], "")
    assert abs(float(cells["min"]) * 60 - record["time"]["training_wall_s"]) <= 30
    metric, value = cells["test"].split()[:2]
    share = 100 if cells["test"].endswith("%") else 1
    assert float(value) == pytest.approx(share * record["metrics"]["test"][metric], abs=0.01)


def test_other_data_and_missing_cards_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = row(load("docs-lm"), read_card("docs-lm"))
    assert "data=docstrings, measured on data=django-docs" in cells["model and data"]
    monkeypatch.setattr(loading, "CARDS", tmp_path)
    assert row(load("digits"), read_card("digits"))["test"] == "-"
