"""A text encoder's own fields: widths, and what earlier versions called them."""

from qkv import QkvEncoderConfig


def test_embeddings_are_as_wide_as_the_layers_unless_given() -> None:
    config = QkvEncoderConfig(hidden_size=12, num_attention_heads=3)
    assert config.embedding_size == config.embedding_width == 12
    assert QkvEncoderConfig(embedding_size=8).embedding_width == 8
