"""Tunes as data: judged by their rules, beside what is known of them, and to be heard."""

from math import log
from pathlib import Path

import pytest
from mido import MidiFile

from qkv.scripts.example_data.tune_grammar import ROW
from qkv.scripts.example_data.tunes import TICKS, Note, harmony, melody, score_tunes, write_midi
from qkv.scripts.lab.baselines import baselines
from qkv.scripts.recipes import loading as recipe
from qkv.scripts.tasks import registry as data
from qkv.scripts.tasks.task import Task

TUNE = "[C] C4 - E4 . G4 - - . ".split() + "[Am] . - A3 A3 - - - - ".split()


@pytest.fixture(scope="module")
def task() -> Task:
    return data.load(recipe.load("tunes", ["text.made=60", "holdout=0.2"]))


def test_nothing_is_better_than_the_rules(task: Task) -> None:
    found = baselines(task)
    rules, near = found["the rules"], found["the last two words"]
    for split in ("validation", "test"):
        assert rules[split]["lawful"] == rules[split]["notes_in_key"] == rules[split]["bars_in_form"] == 1
        assert rules[split]["bits_per_event"] < near[split]["bits_per_event"]
        assert rules[split]["loss"] == pytest.approx(rules[split]["bits_per_event"] * log(2))


def test_what_is_wrong_is_counted() -> None:
    bar = "[C] C4 - - - - - - -".split()
    prompt, tune = "C major AABA", bar * 8
    assert score_tunes([prompt], [" ".join(tune)]) == {"notes_in_key": 1.0, "bars_in_form": 1.0, "lawful": 0.0}
    other = [*tune[: 2 * ROW + 1], "Db4", *tune[2 * ROW + 2 :]]
    assert score_tunes([prompt], [" ".join(other)]) == {"notes_in_key": 7 / 8, "bars_in_form": 2 / 3, "lawful": 0.0}
    assert score_tunes([prompt], [". " * 72])["notes_in_key"] == 0.0


def test_words_become_notes_and_chords() -> None:
    assert melody(TUNE) == [Note(60, 0.0, 1.0), Note(64, 1.0, 1.5), Note(67, 2.0, 3.5), Note(57, 5.0, 5.5),
                            Note(57, 5.5, 8.0)]  # fmt: skip
    assert [(note.key, note.start, note.end) for note in harmony(TUNE)] == [
        (48, 0.0, 4.0), (52, 0.0, 4.0), (55, 0.0, 4.0), (57, 4.0, 8.0), (60, 4.0, 8.0), (64, 4.0, 8.0),
    ]  # fmt: skip
    assert melody(["C4", "[C]", "x4", "-", "C", "Q"]) == [] == harmony(["C4", *"-" * 8, "."])


def heard(path: Path) -> list[tuple[int, float, float, int]]:
    """(key, start, end, channel) of each note, in quarter notes, as mido reads them."""
    found, down = [], {}
    for track in MidiFile(path).tracks:
        now = 0
        for message in track:
            now += message.time
            if message.type == "note_on":
                down[message.channel, message.note] = now
            elif message.type == "note_off":
                start = down.pop((message.channel, message.note))
                found.append((message.note, start / TICKS, now / TICKS, message.channel))
    assert not down
    return sorted(found, key=lambda note: (note[3], note[1:]))


def test_notes_and_chords_come_out_as_they_went_in(tmp_path: Path) -> None:
    melody = [Note(60, 0.0, 0.5), Note(60, 0.5, 1.5), Note(64, 2.0, 3.0)]  # one key twice, without a pause
    chords = [Note(48, 0.0, 4.0, 50), Note(52, 0.0, 4.0, 50)]
    write_midi(tmp_path / "a.mid", [melody, chords], tempo=90)
    assert heard(tmp_path / "a.mid") == [(60, 0.0, 0.5, 0), (60, 0.5, 1.5, 0), (64, 2.0, 3.0, 0), (48, 0.0, 4.0, 1),
                                         (52, 0.0, 4.0, 1)]  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["a.mid"]
    # Four quarters at 90 a minute.
    assert abs(MidiFile(tmp_path / "a.mid").length - 4 * 60 / 90) < 0.01
