"""What a recurrent network is made of: sizes that follow from others, and widths that have to be one."""

from typing import Any

import pytest

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
    ("fields", "sentence"),
    [
        ({"attention": "dot", "encoder_hidden_size": 8}, "states of hidden_size=8 with memory of width 16; set enco"),
        ({"attention": "dot", "hidden_size": 7}, "states of hidden_size=7 with memory of width 6; set encoder_hidden"),
        ({"readout": "none", "readout_size": 4}, "reads states of hidden_size=8, got readout_size=4; leave readout_s"),
        ({"tie_word_embeddings": True, "readout_size": 4}, "readout_size=4 to be embedding_size=8; set readout='tanh'"),
        ({"decoder_start_token_id": 11}, "decoder_start_token_id=11 must be a token id from 0 to 10"),
        ({"cell": "gruu"}, "cell='gruu' is not one of gru, lstm; did you mean 'gru'?"),
        ({"attention": "additiv"}, "attention='additiv' is not one of none, additive, dot; did you mean 'additive'?"),
        ({"hidden_dropout": 1.0}, r"must lie in \[0, 1\)"),
        ({"hiden_size": 8}, "has no field 'hiden_size'; did you mean 'hidden_size'?"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        QkvRecurrentConfig(**{**SIZES, **fields})
