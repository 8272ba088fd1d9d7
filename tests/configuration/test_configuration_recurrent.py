"""What a recurrent network is made of: sizes that follow from others, and widths that have to be one."""

from typing import Any

import pytest

from errors import raises_sentence
from qkv import QkvRecurrentConfig

SIZES = {"hidden_size": 8, "vocab_size": 11}


def test_sizes_follow_from_the_hidden_size() -> None:
    config = QkvRecurrentConfig(**SIZES, num_hidden_layers=3)
    assert (config.embedding_size, config.attention_size, config.readout_size) == (8, 8, 8)
    assert (config.encoder_hidden_size, config.memory_size, config.num_encoder_layers) == (8, 16, 3)
    assert QkvRecurrentConfig(**SIZES, bidirectional=False).memory_size == 8
    assert QkvRecurrentConfig(**SIZES, embedding_size=6).readout_size == 6  # so that tables may be tied
    assert QkvRecurrentConfig(**SIZES, embedding_size=6, readout="none").readout_size == 8


@pytest.mark.parametrize("bidirectional", [True, False])
def test_dot_products_get_a_memory_as_wide_as_the_state(bidirectional: bool) -> None:
    assert QkvRecurrentConfig(**SIZES, attention="dot", bidirectional=bidirectional).memory_size == 8


@pytest.mark.parametrize(
    ("fields", "mentions"),
    [
        ({"attention": "dot", "encoder_hidden_size": 8}, ("hidden_size=8", "16", "encoder_hidden_size")),
        ({"attention": "dot", "hidden_size": 7}, ("hidden_size=7", "6", "encoder_hidden_size")),
        ({"readout": "none", "readout_size": 4}, ("hidden_size=8", "readout_size=4")),
        ({"tie_word_embeddings": True, "readout_size": 4}, ("readout_size=4", "embedding_size=8")),
        ({"decoder_start_token_id": 11}, ("decoder_start_token_id=11", "10")),
        ({"cell": "gruu"}, ("cell='gruu'", "'gru'")),
        ({"attention": "additiv"}, ("attention='additiv'", "'additive'")),
        ({"hidden_dropout": 1.0}, ("hidden_dropout=1.0",)),
        ({"hiden_size": 8}, ("'hiden_size'", "'hidden_size'")),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], mentions: tuple[str, ...]) -> None:
    with raises_sentence(*mentions):
        QkvRecurrentConfig(**{**SIZES, **fields})
