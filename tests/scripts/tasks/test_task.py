"""The prompt of a card's programs: the first row of the test, short."""

import pytest

from qkv.scripts.tasks.task import LONGEST, first, shorten


def test_the_first_row_of_the_test_comes_before_that_of_validation() -> None:
    assert first({"train": ["a"], "validation": ["b"], "test": ["c", "d"]}) == "c"
    assert first({"train": ["a"], "validation": ["b"], "test": []}) == "b" and first({"train": ["a"]}) is None


@pytest.mark.parametrize("text", ["pea soup", "pea soup " * 100, "p" * 1000, "x" * LONGEST, " " * 400 + "x"])
def test_a_long_text_is_cut_between_words(text: str) -> None:
    short = shorten(text)
    assert len(short) <= LONGEST and text.strip().startswith(short) and short
    assert set(short.split()) <= {*text.split(), "p" * LONGEST}
