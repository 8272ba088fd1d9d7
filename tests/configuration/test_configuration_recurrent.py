"""What a recurrent network is made of: sizes that follow from others, and widths that have to be one."""

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
