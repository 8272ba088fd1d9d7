"""Tunes in a key and a form as sequences of tokens, their metrics, and MIDI files of them.

Source: Payne 2019, MuseNet, https://openai.com/index/musenet; events and their grid: Huang et al. 2019, Music
    Transformer, §2, https://arxiv.org/abs/1809.04281
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from qkv.scripts.common.extras import require
from qkv.scripts.common.files import replacing_file
from qkv.scripts.data.corpus import Generate, PromptedCorpus, paired
from qkv.scripts.example_data.tune_grammar import BARS, FORMS, HOLD, NAMES, PROMPTS, ROW, bits, compose, scale
from qkv.scripts.recipes.schema import Recipe

SHOWN = [f"{key} {form}" for key, form in zip(("G major", "A minor", "Eb major", "E minor"), FORMS, strict=True)]
TICKS = 480  # of a quarter note
PRODUCTS = {
    "tunes.png": "Tunes by the model as a piano would play them: melody above, chords below, each bar a column",
    "tunes.mid": "The same tunes, one after the other, to be played",
}


@dataclass(frozen=True)
class Note:
    """A key of a piano, 60 being middle C, from `start` to `end` in quarter notes."""

    key: int
    start: float
    end: float
    velocity: int = 80


def tunes(recipe: Recipe) -> PromptedCorpus:
    """Draw `text.made` tunes from `tune_grammar`, each with its key and form as prompt; every tenth for the test.

    Generated tunes are scored by the rules: their notes, the bars that their form repeats, and the whole.
    """
    require("mido")
    random = np.random.default_rng(0)
    pairs = [(prompt, " ".join(compose(prompt, random))) for prompt in random.choice(PROMPTS, recipe.text.made)]
    corpus = paired("tunes", f"tunes of {BARS} bars, made by rules", "https://github.com/mido/mido", pairs)
    usage = Path(__file__).with_suffix(".usage.txt").read_text(encoding="utf-8").strip()
    return PromptedCorpus(corpus, "event", ROW, score_tunes, write_tunes, usage)


def score_tunes(prompts: Sequence[str], made: Sequence[str]) -> dict[str, float]:
    """Return the shares of notes in the key, of repeated bars that are repeated, and of tunes that break no rule.

    The last bar ends the tune whatever the form repeats.
    """
    notes, repeated, lawful = [], [], []
    for prompt, words in zip(prompts, map(str.split, made), strict=True):
        tonic, mode, form = prompt.split()
        notes += [word in scale(tonic, mode) for word in words if word[0].isalpha()]
        firsts = [2 * form.index(form[bar // 2]) + bar % 2 for bar in range(BARS - 1)]
        repeated += [words[bar * ROW : (bar + 1) * ROW] == words[first * ROW : (first + 1) * ROW]
                     for bar, first in enumerate(firsts) if first < bar]  # fmt: skip
        lawful.append(isfinite(bits(prompt, words)))
    shares = {"notes_in_key": notes, "bars_in_form": repeated, "lawful": lawful}
    return {name: float(np.mean(values)) if values else 0.0 for name, values in shares.items()}


def write_tunes(generate: Generate, folder: Path) -> dict[str, str]:
    """Generate a tune of every form, as a picture and a MIDI file."""
    made = [words.split() for words in generate(SHOWN)]
    figure = Figure(figsize=(10, 6), layout="constrained")
    parts: tuple[list[Note], list[Note]] = ([], [])
    for axis, prompt, words in zip(figure.subplots(2, 2).flat, SHOWN, made, strict=True):
        start = 4.0 * (BARS + 1) * SHOWN.index(prompt)
        for part, notes, colour in zip(parts, (melody(words), harmony(words)), ("C0", "C1"), strict=True):
            part += [Note(each.key, start + each.start, start + each.end, each.velocity) for each in notes]
            for each in notes:
                axis.plot([each.start, each.end - 0.1], [each.key, each.key], colour, linewidth=3)
        axis.set(title=prompt, xticks=range(0, 4 * BARS + 1, 4), xticklabels=range(BARS + 1), xlabel="bar")
        axis.set_yticks(range(48, 85, 12), [f"C{octave}" for octave in range(3, 7)])
        axis.grid(alpha=0.3)
    figure.savefig(folder / "tunes.png", dpi=110)
    write_midi(folder / "tunes.mid", parts)
    return dict(PRODUCTS)


def melody(words: Sequence[str]) -> list[Note]:
    """Return the notes of a tune; what is no note where one may be is silence."""
    notes: list[Note] = []
    held = False
    eighths = [word for place, word in enumerate(words) if place % ROW]
    for place, word in enumerate(eighths):
        if word == HOLD and held:
            notes[-1] = Note(notes[-1].key, notes[-1].start, (place + 1) / 2)
            continue
        held = word[:-1] in NAMES and word[-1].isdigit()
        if held:
            notes.append(Note(12 * (int(word[-1]) + 1) + NAMES.index(word[:-1]), place / 2, (place + 1) / 2))
    return notes


def harmony(words: Sequence[str]) -> list[Note]:
    """Return the chords of a tune, a bar long and softer than the melody; silence where a bar begins with none."""
    notes = []
    for bar, word in enumerate(words[::ROW]):
        name = word.strip("[]")
        minor = name.endswith("m")
        if name.removesuffix("m") in NAMES:
            root = 48 + NAMES.index(name.removesuffix("m"))
            notes += [Note(root + up, 4.0 * bar, 4.0 * bar + 4, 50) for up in (0, 3 if minor else 4, 7)]
    return notes


def write_midi(path: Path, parts: Iterable[Sequence[Note]], *, tempo: float = 110.0) -> None:
    """Write a MIDI file of parts that sound together, `tempo` quarter notes a minute, whole or not at all."""
    from mido import Message, MetaMessage, MidiFile, MidiTrack, bpm2tempo

    file = MidiFile(ticks_per_beat=TICKS)
    for channel, notes in enumerate(parts):
        events = [(round(time * TICKS), kind, note.key, velocity) for note in notes for kind, velocity, time in
                  (("note_on", note.velocity, note.start), ("note_off", 0, note.end))]  # fmt: skip
        # Notes end (off) before others begin (on) at the same time, or a repeated key would fall silent.
        events.sort(key=lambda event: event[:2])
        befores = [0, *(time for time, *_ in events)]
        file.tracks.append(MidiTrack(
            Message(kind, channel=channel, note=key, velocity=velocity, time=time - before)
            for (time, kind, key, velocity), before in zip(events, befores, strict=False)
        ))  # fmt: skip
    file.tracks[0].insert(0, MetaMessage("set_tempo", tempo=bpm2tempo(tempo)))
    with replacing_file(path) as made:
        file.save(made)
