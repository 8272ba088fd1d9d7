"""Words of fields are told and compared, and what is left out follows."""

from types import SimpleNamespace
from typing import Literal

import pytest

from errors import raises_sentence
from qkv.configuration.fields import check_choice, fill_in, literal_words


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Literal["a", "b"], ("a", "b")),
        (list[Literal["a", "b"]] | Literal["b", "c"] | None, ("a", "b", "c")),
        (int | None, ()),
    ],
)
def test_words_of_an_annotation(annotation: object, words: tuple[str, ...]) -> None:
    assert literal_words(annotation) == words


def test_the_nearest_word_is_named() -> None:
    check_choice(("rope", "alibi"), "position", "rope")
    with raises_sentence("position='rop'", "rope, alibi", "'rope'"):
        check_choice(("rope", "alibi"), "position", "rop")


def test_only_what_was_left_out_follows() -> None:
    config = SimpleNamespace(width=None, depth=3)
    fill_in(config, {"width": 12, "depth": 5})
    assert (config.width, config.depth) == (12, 3)
