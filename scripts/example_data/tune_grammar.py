"""A probabilistic grammar of tunes of eight bars, which says of every next token how likely it is.

A bar is a row of nine tokens: its chord, and for each of its eighths a note that begins, "-" where one is held, "."
where none sounds. Since the grammar is known, so is the loss that no model can go below.
"""

from collections.abc import Sequence
from functools import cache
from math import exp, inf, log2

import numpy as np

from qkv.scripts.common.files import table

TABLES = table(__file__)
NAMES, STEPS, FORMS, CHORDS = (TABLES[name] for name in ("names", "steps", "forms", "chords"))
BARS, EIGHTHS = 8, 8
ROW = 1 + EIGHTHS
HOLD, REST = "-", "."
# Degrees of the scale that a melody may use, 0 the tonic, 7 the one above.
DEGREES = range(-3, 10)
LEAP = 4
PROMPTS = [f"{tonic} {mode} {form}" for tonic in NAMES for mode in STEPS for form in FORMS]


def following(prompt: str, words: Sequence[str]) -> dict[str, float]:
    """Return the probabilities of the next token of a tune."""
    tonic, mode, form = prompt.split()
    bar, place = divmod(len(words), ROW)
    if bar == BARS - 1:
        return {cadence(tonic, mode, words, place): 1.0}
    first = 2 * form.index(form[bar // 2]) + bar % 2
    if first < bar:
        return {words[first * ROW + place]: 1.0}
    if place == 0:
        return chords_after(tonic, mode, words[-ROW] if words else None)
    sounding = place > 1 and words[-1] != REST
    return melody(tonic, mode, words[bar * ROW], place - 1, last_note(words), sounding=sounding)


def cadence(tonic: str, mode: str, words: Sequence[str], place: int) -> str:
    """Return a token of the last bar: the chord of the tonic, and the tonic nearest to the melody, held."""
    if place == 0:
        return chord(tonic, mode, 0)
    if place > 1:
        return HOLD
    last = last_note(words)
    degree = scale(tonic, mode).index(last) + DEGREES[0] if last else 0
    return note(tonic, mode, 7 if degree > 3 else 0)


def last_note(words: Sequence[str]) -> str | None:
    """Return the last note of the melody so far."""
    return next((word for word in reversed(words) if word[0].isalpha()), None)


@cache
def chords_after(tonic: str, mode: str, last: str | None) -> dict[str, float]:
    """Return the probabilities of the next bar's chord; a tune begins with that of the tonic."""
    if last is None:
        return {chord(tonic, mode, 0): 1.0}
    names = {chord(tonic, mode, degree): degree for degree in CHORDS[mode]}
    return {chord(tonic, mode, degree): chance for degree, chance in CHORDS[mode][names[last]].items()}


@cache
def melody(tonic: str, mode: str, harmony: str, eighth: int, last: str | None, *, sounding: bool) -> dict[str, float]:
    """Return the probabilities of a note, a hold or a rest: on the beat more notes, on half bars more of the chord."""
    on_beat = eighth % 2 == 0
    rest = 0.06 if sounding or eighth == 0 else 0.2
    hold = (0.34 if on_beat else 0.5) if sounding else 0.0
    root = next(degree for degree in CHORDS[mode] if chord(tonic, mode, degree) == harmony)
    centre = scale(tonic, mode).index(last) + DEGREES[0] if last else 2
    weights = {}
    for degree in DEGREES:
        distance = abs(degree - centre)
        if distance <= LEAP:
            fits = 6.0 if eighth % 4 == 0 and (degree - root) % 7 in (0, 2, 4) else 1.0
            weights[note(tonic, mode, degree)] = exp(-distance / 1.5) * fits * (0.5 if distance == 0 else 1.0)
    share = (1.0 - rest - hold) / sum(weights.values())
    return {REST: rest, **({HOLD: hold} if hold else {}), **{word: weight * share for word, weight in weights.items()}}


def note(tonic: str, mode: str, degree: int) -> str:
    """Return the name of a degree of the scale, such as Eb4, from the tonic nearest to middle C on, which is C4."""
    (octave, step), place = divmod(degree, 7), NAMES.index(tonic)
    key = (60 if place <= 6 else 48) + place + 12 * octave + STEPS[mode][step]
    return f"{NAMES[key % 12]}{key // 12 - 1}"


def chord(tonic: str, mode: str, degree: int) -> str:
    """Return the name of the triad on a degree, such as [Am]."""
    root, third = (STEPS[mode][each % 7] + 12 * (each // 7) for each in (degree, degree + 2))
    return f"[{NAMES[(NAMES.index(tonic) + root) % 12]}{'m' if third - root == 3 else ''}]"


@cache
def scale(tonic: str, mode: str) -> list[str]:
    """Return the notes that a melody may use, from low to high."""
    return [note(tonic, mode, degree) for degree in DEGREES]


def compose(prompt: str, random: np.random.Generator) -> list[str]:
    """Draw a tune token by token."""
    words: list[str] = []
    while len(words) < BARS * ROW:
        chances = following(prompt, words)
        words.append(str(random.choice(list(chances), p=list(chances.values()))) if len(chances) > 1 else [*chances][0])
    return words


def bits(prompt: str, words: Sequence[str]) -> float:
    """Return the bits of a tune under the grammar, infinite where it breaks a rule."""
    if len(words) != BARS * ROW:
        return inf
    total = 0.0
    for place, word in enumerate(words):
        if not (chance := following(prompt, words[:place]).get(word, 0.0)):
            return inf
        total -= log2(chance)
    return total
