"""Tunes keep to the rules of a grammar, are judged by them, and can be heard."""

from math import inf, log, log2
from pathlib import Path

import numpy as np
import pytest
from mido import MidiFile

from qkv.scripts.example_data.tune_grammar import BARS, PROMPTS, ROW, bits, compose, following
from qkv.scripts.example_data.tunes import TICKS, Note, harmony, melody, score_tunes, write_midi
from qkv.scripts.lab.baselines import baselines
from qkv.scripts.recipes import loading as recipe
from qkv.scripts.tasks import registry as data

TUNE = "[C] C4 - E4 . G4 - - . ".split() + "[Am] . - A3 A3 - - - - ".split()


@pytest.mark.parametrize("prompt", PROMPTS[:28:7])
def test_chances_add_up_and_make_the_bits(prompt: str) -> None:
    words = compose(prompt, np.random.default_rng(0))
    chances = [following(prompt, words[:place]) for place in range(len(words))]
    assert all(abs(sum(each.values()) - 1) < 1e-12 and min(each.values()) > 0 for each in chances)
    total = -sum(log2(each[word]) for each, word in zip(chances, words, strict=True))
    assert len(words) == BARS * ROW and bits(prompt, words) == pytest.approx(total)


def test_a_wrong_note_chord_bar_or_length_is_not_lawful() -> None:
    words = compose("C major AABA", np.random.default_rng(0))
    assert bits("C major AABA", words) < inf
    for place, word in ((1, "Db4"), (0, "[F]"), (2 * ROW + 1, "."), (-1, "."), (5, "[C]"), (3, "nonsense")):
        wrong = list(words)
        wrong[place] = word
        assert bits("C major AABA", wrong) == inf, (place, word)
    assert bits("C major AABA", words[:-1]) == bits("C major AABA", [*words, "-"]) == bits("D major AABA", words) == inf


def test_nothing_is_better_than_the_rules() -> None:
    found = baselines(data.load(recipe.load("tunes", ["text.made=60", "holdout=0.2"])))
    rules, near = found["the rules"], found["the last two words"]
    for split in ("validation", "test"):
        assert rules[split]["lawful"] == rules[split]["notes_in_key"] == rules[split]["bars_in_form"] == 1
        assert rules[split]["bits_per_event"] < near[split]["bits_per_event"]
        assert rules[split]["loss"] == pytest.approx(rules[split]["bits_per_event"] * log(2))


def test_mistakes_are_counted() -> None:
    prompt, tune = "C major AABA", "[C] C4 - - - - - - -".split() * 8
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


def test_notes_and_chords_come_out_as_they_went_in(tmp_path: Path) -> None:
    melody = [Note(60, 0.0, 0.5), Note(60, 0.5, 1.5), Note(64, 2.0, 3.0)]  # one key twice, without a pause
    chords = [Note(48, 0.0, 4.0, 50), Note(52, 0.0, 4.0, 50)]
    write_midi(tmp_path / "a.mid", [melody, chords], tempo=90)
    file, down = MidiFile(tmp_path / "a.mid"), {}
    for channel, (track, notes) in enumerate(zip(file.tracks, (melody, chords), strict=True)):
        now, found = 0, []
        for message in track:
            now += message.time
            if message.type == "note_on":
                down[message.note] = now
            elif message.type == "note_off":
                assert message.channel == channel
                found.append((message.note, down.pop(message.note) / TICKS, now / TICKS))
        assert sorted(found) == sorted((note.key, note.start, note.end) for note in notes) and not down
    assert [path.name for path in tmp_path.iterdir()] == ["a.mid"]
    assert abs(file.length - 4 * 60 / 90) < 0.01  # four quarters at 90 a minute
