"""Rows that the training split holds as well: equal, and nearly equal, against definitions written plainly."""

import io
import re

import numpy as np
import pytest
from PIL import Image

from qkv.scripts.data.splits import duplicates
from qkv.scripts.data.splits.duplicates import Sketch

WORDS = "the form checks each field and shows errors beside its widget when a page is sent by its reader".split()


def find_leaks(*splits):
    kinds = {str: Sketch.of_text, bytes: Sketch.of_bytes}
    return duplicates.find_leaks(
        *([kinds.get(type(value), Sketch.of_image)(value) for value in rows] for rows in splits)
    )


def sentences(count, seed=0, length=30):
    draws = np.random.default_rng(seed)
    return [" ".join(draws.choice(WORDS, length)) for _ in range(count)]


def noise(seed, side=64):
    """A picture of soft random shapes."""
    pixels = np.random.default_rng(seed).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((side, side), Image.Resampling.BICUBIC)


def compressed(image):
    file = io.BytesIO()
    image.save(file, "JPEG", quality=60)
    return Image.open(file).convert("RGB")


def test_equal_rows_are_found_whatever_they_are():
    image = noise(0)
    for train, evaluated in [
        (["a b c", "d e f"], ["x y z", "d e f"]),
        ([b"\0\1", b"\2"], [b"\3", b"\2"]),
        ([noise(1), image], [noise(2), image.copy()]),
    ]:
        assert find_leaks(train, evaluated)[0] == {1: 1}


def jaccard(one, other):
    def runs(text):
        plain = " ".join(re.findall(r"\w+", text.lower()))
        return {plain[at : at + 5] for at in range(len(plain) - 4)}

    return len(runs(one) & runs(other)) / len(runs(one) | runs(other))


def test_near_texts_are_those_of_like_shingles():
    train, evaluated = sentences(60), sentences(40, seed=1)
    evaluated[:10] = [text.upper().replace(" ", "  ") + "!" for text in train[:10]]
    evaluated[10:20] = [text.replace(text.split()[3], "another", 1) for text in train[10:20]]
    found = set(find_leaks(train, evaluated)[1])
    expected = {row for row, text in enumerate(evaluated) if max(jaccard(text, other) for other in train) >= 0.8}
    assert found == expected >= set(range(10)) and not set(range(20, 40)) & found


def test_copies_of_an_image_are_found_and_others_are_not():
    train = [noise(seed) for seed in range(20)]
    copies = [compressed(train[3]), train[4].resize((48, 48))]
    assert find_leaks(train, [*copies, *(noise(seed) for seed in range(100, 140))]) == ({}, {0: 3, 1: 4})


@pytest.mark.parametrize("most", [1, 100])
def test_many_rows_are_searched_for_equal_ones_alone(most, monkeypatch):
    monkeypatch.setattr(duplicates, "MOST", most)
    texts = sentences(3)
    assert find_leaks(texts, [texts[0], texts[1].upper()]) == ({0: 0}, {1: 1} if most > 1 else None)


@pytest.mark.parametrize("texts", [[], ["a"], ["", "é"]])
def test_short_and_missing_texts_are_no_error(texts):
    assert find_leaks(texts, ["b"]) in (({}, {}), ({}, None)) and find_leaks(["b"], []) == ({}, None)
