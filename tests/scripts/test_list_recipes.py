"""`qkv recipes`: every recipe with what it trains, and what its committed card has measured."""

import json
from pathlib import Path

import pytest

from qkv.scripts.cli import main
from qkv.scripts.list_recipes import counted, row, task_of
from qkv.scripts.recipes import cards
from qkv.scripts.recipes.cards import read_card
from qkv.scripts.recipes.loading import load, names

CARDS = Path(__file__).parents[2] / "model_cards"


def test_every_recipe_is_listed_within_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    listed = [line.split()[0] for line in lines[1:] if line[:1].strip()]
    assert set(names()) <= set(listed) and all(load(name).title.split()[0] in "\n".join(lines) for name in names())


@pytest.mark.parametrize("name", names())
def test_figures_are_those_of_the_card(name: str) -> None:
    path = CARDS / name / "record.json"
    _, task, *figures = row(load(name), read_card(name))
    assert task
    if not path.is_file():
        assert figures == ["-", "-", "-"]
        return
    record = json.loads(path.read_text())
    size, result, minutes = figures
    assert size == counted(record["parameters"]) and abs(float(minutes) * 60 - record["time"]["training_wall_s"]) <= 30
    metric, value = result.split()[:2]
    share = 100 if result.endswith("%") else 1
    assert float(value) == pytest.approx(share * record["metrics"]["test"][metric], abs=0.01)


def test_data_of_the_measurement_are_named_where_they_are_others(capsys: pytest.CaptureFixture[str]) -> None:
    main(["recipes"])
    assert "data=docstrings, measured on data=django-docs" in " ".join(capsys.readouterr().out.split())


def test_without_cards_nothing_is_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "CARDS", tmp_path)
    assert row(load("digits"), read_card("digits")) == ["digits", "image classification", "-", "-", "-"]


@pytest.mark.parametrize(
    ("number", "text"), [(52, "0k"), (152714, "153k"), (999999, "1M"), (1053824, "1.05M"), (124e6, "124M")]
)
def test_numbers_are_short(number: int, text: str) -> None:
    assert counted(number) == text


def test_tasks_are_words() -> None:
    assert task_of("QkvDecoderForCausalLM") == "causal LM" and task_of("QkvDualEncoderModel") == "dual encoder"
    assert task_of("QkvAudioEncoderForCTC") == "CTC"
    assert task_of("QkvSpeechEncoderDecoderForSpeechSeq2Seq") == "speech seq2seq"
