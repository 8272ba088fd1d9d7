"""Tunes keep to the rules, the rules are chances, and what breaks one is found out."""

from math import inf, log2

import numpy as np
import pytest

from qkv.scripts.example_data.tune_grammar import (
    BARS,
    PROMPTS,
    ROW,
    bits,
    compose,
    following,
)

TUNES = [(prompt, compose(prompt, np.random.default_rng(index))) for index, prompt in enumerate(PROMPTS[::7])]


@pytest.mark.parametrize(("prompt", "words"), TUNES[:4], ids=lambda given: given if isinstance(given, str) else "")
def test_chances_add_up_and_make_the_bits(prompt: str, words: list[str]) -> None:
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
    assert bits("C major AABA", words[:-1]) == bits("C major AABA", [*words, "-"]) == inf
    assert bits("D major AABA", words) == inf
