"""What the programs of a card ask about: the first row of the test, short, and of images and sound no bytes."""

import pytest

from qkv.scripts.tasks.task import LONGEST, first, of_image, of_recording, of_text, shorten


def test_the_first_row_of_the_test_comes_before_that_of_validation() -> None:
    assert first({"train": ["a"], "validation": ["b"], "test": ["c", "d"]}) == "c"
    assert first({"train": ["a"], "validation": ["b"], "test": []}) == "b"
    assert first({"train": ["a"]}) is None and of_text(None) == of_text("") == {}


@pytest.mark.parametrize("text", ["pea soup", "pea soup " * 100, "p" * 1000, "x" * LONGEST, " " * 400 + "x"])
def test_a_long_text_is_cut_between_words(text: str) -> None:
    short = shorten(text)
    assert len(short) <= LONGEST and text.strip().startswith(short) and short
    assert set(short.split()) <= {*text.split(), "p" * LONGEST}


def test_files_are_described() -> None:
    assert of_image((40, 30), ["a", "b\n", "c", "d"])["about"] == (
        "image.png: such as the first of the test, of 40 x 30 pixels, with 'a' and 'b\\n' and 'c' and more"
    )
    assert of_recording(1.26, "one")["about"] == "speech.wav: such as the first of the test, 1.3 s of 'one'"
