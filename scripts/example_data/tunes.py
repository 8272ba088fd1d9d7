"""How does a tune go on? Keys and forms, and tunes in them, word by word: a small relative of MuseNet.

Source: Payne 2019, MuseNet, https://openai.com/index/musenet; events and their grid: Huang et al. 2019, Music
    Transformer, §2, https://arxiv.org/abs/1809.04281
"""

from collections import Counter
from collections.abc import Sequence
from math import isfinite, log, log2
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from qkv.scripts.common.extras import require
from qkv.scripts.data.corpus import Corpus, pairs
from qkv.scripts.example_data.midi import Note, write_midi
from qkv.scripts.example_data.tune_grammar import BARS, FORMS, HOLD, NAMES, PROMPTS, ROW, bits, compose, scale
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.baselines import Baselines, evaluated
from qkv.scripts.tasks.prompted_generation import Craft, Maker, prompted
from qkv.scripts.tasks.task import Task

SHOWN = [f"{key} {form}" for key, form in zip(("G major", "A minor", "Eb major", "E minor"), FORMS, strict=True)]
ANY = "*"  # word, where the one before last does not matter
PRODUCTS = {
    "tunes.png": "Tunes by the model as a piano would play them: melody above, chords below, each bar a column",
    "tunes.mid": "The same tunes, one after the other, to be played",
}
USAGE = """\
from mido import Message, MidiFile, MidiTrack
from transformers import pipeline

compose = pipeline("text-generation", model=...)
words = compose("G major AABA", return_full_text=False)[0]["generated_text"].split()
names = "C Db D Eb E F Gb G Ab A Bb B".split()
track, waited, key = MidiTrack(), 0, None
melody = [word for place, word in enumerate(words) if place % 9]  # the first word of a bar is its chord
for word in [*melody, "."]:
    if word != "-" and key is not None:
        track.append(Message("note_off", note=key, time=waited))
        waited, key = 0, None
    if word[0].isalpha():
        key = names.index(word[:-1]) + 12 * int(word[-1]) + 12
        track.append(Message("note_on", note=key, time=waited))
        waited = 0
    waited += 240
MidiFile(tracks=[track]).save("tune.mid")
print(" ".join(words))"""


def tunes(recipe: Recipe) -> Task:
    """`text.made` tunes by the rules of `tune_rules`, each with its key and form as prompt; every tenth for the test.

    What is made is judged by the rules: by its notes, by the bars that its form repeats, and as a whole.
    """
    require("mido")
    random = np.random.default_rng(0)
    found = [(prompt, " ".join(compose(prompt, random))) for prompt in random.choice(PROMPTS, recipe.text.made)]
    here = "https://github.com/mido/mido"
    corpus = pairs("tunes", f"tunes of {BARS} bars, made by rules", here, found)
    return prompted(recipe, corpus, Craft("event", ROW, judged, listened, simpler, USAGE))


def judged(prompts: Sequence[str], made: Sequence[str]) -> dict[str, float]:
    """Which share of notes is in the key, which of the bars to be repeated is, and which of tunes breaks no rule."""
    notes, repeated, lawful = [], [], []
    for prompt, words in zip(prompts, map(str.split, made), strict=True):
        tonic, mode, _ = prompt.split()
        notes += [word in scale(tonic, mode) for word in words if word[0].isalpha()]
        repeated += [words[bar * ROW : (bar + 1) * ROW] == words[first * ROW : (first + 1) * ROW]
                     for bar, first in repeats(prompt)]  # fmt: skip
        lawful.append(isfinite(bits(prompt, words)))
    shares = {"notes_in_key": notes, "bars_in_form": repeated, "lawful": lawful}
    return {name: float(np.mean(found)) if found else 0.0 for name, found in shares.items()}


def repeats(prompt: str) -> list[tuple[int, int]]:
    """The bars that a form repeats, and those that they repeat; the last bar ends the tune whatever it is."""
    form = prompt.split()[2]
    firsts = [(bar, 2 * form.index(form[bar // 2]) + bar % 2) for bar in range(BARS - 1)]
    return [(bar, first) for bar, first in firsts if first < bar]


def simpler(corpus: Corpus) -> Baselines:
    """The rules themselves, which nothing can be better than, and a guess from the last two words."""
    lawful, near = {}, {}
    counts = pairs_counted(corpus)
    kinds = len({word for text in corpus.targets["train"] for word in text.split()})
    for name in evaluated(corpus):
        prompts, made = corpus.texts[name], corpus.targets[name]
        exact = float(np.mean([bits(*pair) for pair in zip(prompts, map(str.split, made), strict=True)])) / (BARS * ROW)
        lawful[name] = {"loss": exact * log(2), "bits_per_event": exact, **judged(prompts, made)}
        guesses = [guessed(counts, kinds, *step) for text in made for step in contexts(text)]
        guess = -float(np.mean([log2(chance) for chance in guesses]))
        near[name] = {"loss": guess * log(2), "bits_per_event": guess}
    return {"the rules": lawful, "the last two words": near}


def contexts(text: str) -> list[tuple[tuple[str, ...], str]]:
    """Each word of a tune after its place in the bar and the two words before it, the last one first."""
    words = ["", "", *text.split()]
    return [((str(i % ROW), words[i + 1], words[i]), words[i + 2]) for i in range(len(words) - 2)]


def pairs_counted(corpus: Corpus) -> Counter[tuple[str, ...]]:
    """How often each word was seen in training after what, and how often what was."""
    counts: Counter[tuple[str, ...]] = Counter()
    for text in corpus.targets["train"]:
        for context, word in contexts(text):
            counts.update([context, (*context, word), context[:2], (*context[:2], ANY, word)])
    return counts


def guessed(counts: Counter[tuple[str, ...]], kinds: int, context: tuple[str, ...], word: str) -> float:
    """How likely a word is after two others: as often as it was seen there, and a little as often as after the last."""
    wider = (counts[(*context[:2], ANY, word)] + 1.0 / kinds) / (counts[context[:2]] + 1.0)
    return (counts[(*context, word)] + 2.0 * wider) / (counts[context] + 2.0)


def listened(maker: Maker, folder: Path) -> dict[str, str]:
    """Leave tunes of every form, to be looked at and listened to."""
    made = [words.split() for words in maker(SHOWN)]
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
    """The notes of a tune; whatever is no note where one may be is silence."""
    found: list[Note] = []
    held = False
    eighths = [word for place, word in enumerate(words) if place % ROW]
    for place, word in enumerate(eighths):
        if word == HOLD and held:
            found[-1] = Note(found[-1].key, found[-1].start, (place + 1) / 2)
            continue
        held = word[:-1] in NAMES and word[-1].isdigit()
        if held:
            found.append(Note(12 * (int(word[-1]) + 1) + NAMES.index(word[:-1]), place / 2, (place + 1) / 2))
    return found


def harmony(words: Sequence[str]) -> list[Note]:
    """The chords of a tune, a bar long and softer than the melody; silence where a bar begins with none."""
    found = []
    for bar, word in enumerate(words[::ROW]):
        name = word.strip("[]")
        minor = name.endswith("m")
        if name.removesuffix("m") in NAMES:
            root = 48 + NAMES.index(name.removesuffix("m"))
            found += [Note(root + up, 4.0 * bar, 4.0 * bar + 4, 50) for up in (0, 3 if minor else 4, 7)]
    return found
