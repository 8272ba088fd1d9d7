"""Patterns of layers, the sizes that each word needs, and the caches that follow."""

import pytest

from comparison import decoder, encoder
from errors import raises_sentence


def test_a_cache_forgets_where_no_token_is_global() -> None:
    window = {"pattern": "sliding", "sliding_window": 3, "num_hidden_layers": 1}
    assert decoder(**window).layer_types == ["sliding_attention"] and decoder(**window).window_of(0) == 3
    for kept in ({"num_global_tokens": 1}, {"pattern": "dilated"}):
        config = decoder(**{**window, **kept})
        assert config.layer_types == ["full_attention"] and config.window_of(0) is None


@pytest.mark.parametrize("word", ["sliding", "dilated"])
def test_a_window_has_a_width(word: str) -> None:
    with raises_sentence(f"pattern={word!r}", "sliding_window", "None"):
        encoder(pattern=["full", word, word])


def test_a_block_is_longer_than_its_last_columns() -> None:
    assert encoder(pattern="fixed", block_size=3, fixed_columns=2).fixed_columns == 2
    with raises_sentence("pattern='fixed'", "fixed_columns=3", "block_size=3"):
        encoder(pattern="fixed", block_size=3, fixed_columns=3)
    assert encoder(pattern="strided", block_size=3).fixed_columns == 8
