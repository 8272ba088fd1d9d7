"""Tunes as data: judged by their rules, beside what is known of them, and to be heard."""

from math import log
from pathlib import Path

import pytest
from mido import MidiFile

from qkv.scripts.example_data.midi import Note
from qkv.scripts.example_data.tune_grammar import ROW
from qkv.scripts.example_data.tunes import harmony, judged, listened, melody
from qkv.scripts.recipes import schema as recipe
from qkv.scripts.tasks import registry as data
from qkv.scripts.tasks.task import Task

TUNE = "[C] C4 - E4 . G4 - - . ".split() + "[Am] . - A3 A3 - - - - ".split()


@pytest.fixture(scope="module")
def task() -> Task:
    return data.load(recipe.load("tunes", ["text.made=60", "holdout=0.2"]))


def test_prompts_and_tunes_are_rows_of_one_length(task: Task) -> None:
    assert task.sizes() == {"train": 44, "validation": 10, "test": 6}
    assert task.config["text_length"] == 4 and task.config["grid_columns"] == ROW
    assert task.config["max_position_embeddings"] == 4 + 8 * ROW
    assert task.fingerprint() == data.load(recipe.load("tunes", ["text.made=60", "holdout=0.2"])).fingerprint()


def test_nothing_is_better_than_the_rules(task: Task) -> None:
    found = task.baselines()
    rules, near = found["the rules"], found["the last two words"]
    for split in ("validation", "test"):
        assert rules[split]["lawful"] == rules[split]["notes_in_key"] == rules[split]["bars_in_form"] == 1
        assert rules[split]["bits_per_event"] < near[split]["bits_per_event"]
        assert rules[split]["loss"] == pytest.approx(rules[split]["bits_per_event"] * log(2))


def test_what_is_wrong_is_counted() -> None:
    bar = "[C] C4 - - - - - - -".split()
    prompt, tune = "C major AABA", bar * 8
    assert judged([prompt], [" ".join(tune)]) == {"notes_in_key": 1.0, "bars_in_form": 1.0, "lawful": 0.0}
    other = [*tune[: 2 * ROW + 1], "Db4", *tune[2 * ROW + 2 :]]
    assert judged([prompt], [" ".join(other)]) == {"notes_in_key": 7 / 8, "bars_in_form": 2 / 3, "lawful": 0.0}
    assert judged([prompt], [". " * 72])["notes_in_key"] == 0.0


def test_words_become_notes_and_chords() -> None:
    assert melody(TUNE) == [Note(60, 0.0, 1.0), Note(64, 1.0, 1.5), Note(67, 2.0, 3.5), Note(57, 5.0, 5.5),
                            Note(57, 5.5, 8.0)]  # fmt: skip
    assert [(note.key, note.start, note.end) for note in harmony(TUNE)] == [
        (48, 0.0, 4.0), (52, 0.0, 4.0), (55, 0.0, 4.0), (57, 4.0, 8.0), (60, 4.0, 8.0), (64, 4.0, 8.0),
    ]  # fmt: skip
    assert melody(["C4", "[C]", "x4", "-", "C", "Q"]) == [] == harmony(["C4", *"-" * 8, "."])


def test_tunes_are_left_to_be_seen_and_heard(tmp_path: Path) -> None:
    products = listened(lambda prompts: [" ".join(TUNE)] * len(prompts), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(products) == {"tunes.png", "tunes.mid"}
    played = [message.note for message in MidiFile(tmp_path / "tunes.mid").tracks[0] if message.type == "note_on"]
    assert played == [60, 64, 67, 57, 57] * 4
