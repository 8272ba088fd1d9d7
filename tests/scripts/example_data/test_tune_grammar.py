"""Tunes keep to the rules, the rules are chances, and what breaks one is found out."""

from math import inf, log2

import numpy as np
import pytest

from qkv.scripts.example_data.tune_grammar import (
    BARS,
    FORMS,
    PROMPTS,
    ROW,
    bits,
    chord,
    compose,
    following,
    key_name,
    scale,
    vocabulary,
)

TUNES = [(prompt, compose(prompt, np.random.default_rng(index))) for index, prompt in enumerate(PROMPTS[::7])]


def test_names() -> None:
    assert [key_name(key) for key in (59, 60, 61, 72)] == ["B3", "C4", "Db4", "C5"]
    assert scale("C", "major") == "G3 A3 B3 C4 D4 E4 F4 G4 A4 B4 C5 D5 E5".split()
    assert scale("A", "minor")[3:10] == "A3 B3 C4 D4 E4 F4 G4".split()
    assert [chord("C", "major", degree) for degree in range(6)] == ["[C]", "[Dm]", "[Em]", "[F]", "[G]", "[Am]"]
    assert [chord("A", "minor", degree) for degree in (0, 2, 4, 6)] == ["[Am]", "[C]", "[Em]", "[G]"]


@pytest.mark.parametrize(("prompt", "words"), TUNES[:4], ids=lambda given: given if isinstance(given, str) else "")
def test_chances_add_up_and_make_the_bits(prompt: str, words: list[str]) -> None:
    chances = [following(prompt, words[:place]) for place in range(len(words))]
    assert all(abs(sum(each.values()) - 1) < 1e-12 and min(each.values()) > 0 for each in chances)
    total = -sum(log2(each[word]) for each, word in zip(chances, words, strict=True))
    assert len(words) == BARS * ROW and bits(prompt, words) == pytest.approx(total)


def test_tunes_are_made_of_all_words_of_the_vocabulary_and_no_others() -> None:
    random = np.random.default_rng(0)
    assert {word for prompt in PROMPTS * 4 for word in compose(prompt, random)} == vocabulary()


@pytest.mark.parametrize("form", FORMS)
def test_bars_that_a_form_repeats_are_repeated(form: str) -> None:
    words = next(words for prompt, words in TUNES if prompt.endswith(form))
    bars = [words[start : start + ROW] for start in range(0, len(words), ROW)]
    for bar in range(BARS - 1):
        for earlier in range(bar):
            if form[bar // 2] == form[earlier // 2] and bar % 2 == earlier % 2:
                assert bars[bar] == bars[earlier]
    assert bars[-1][1][:-1] == next(prompt for prompt, other in TUNES if other is words).split()[0]


def test_a_wrong_note_chord_bar_or_length_is_not_lawful() -> None:
    words = compose("C major AABA", np.random.default_rng(0))
    assert bits("C major AABA", words) < inf
    for place, word in ((1, "Db4"), (0, "[F]"), (2 * ROW + 1, "."), (-1, "."), (5, "[C]"), (3, "nonsense")):
        wrong = list(words)
        wrong[place] = word
        assert bits("C major AABA", wrong) == inf, (place, word)
    assert bits("C major AABA", words[:-1]) == bits("C major AABA", [*words, "-"]) == inf
    assert bits("D major AABA", words) == inf
