"""A text encoder's own fields: widths, and what earlier versions called them."""

from typing import Any

import pytest

from errors import raises_sentence
from qkv import QkvEncoderConfig


def test_embeddings_are_as_wide_as_the_layers_unless_given() -> None:
    config = QkvEncoderConfig(hidden_size=12, num_attention_heads=3)
    assert config.embedding_size == config.embedding_width == 12
    assert QkvEncoderConfig(embedding_size=8).embedding_width == 8


@pytest.mark.parametrize(
    ("fields", "mentions"),
    [
        ({"frontend": "patches"}, ("frontend='patches'", "QkvImageEncoderConfig")),
        ({"frontend": "spectrogram"}, ("frontend='spectrogram'", "QkvAudioEncoderConfig")),
        ({"attention_patterns": ["full"]}, ("attention_patterns", "pattern")),
        ({"attention_output_bias": False}, ("attention_output_bias=False", "attention_bias")),
    ],
)
def test_fields_of_earlier_versions_name_their_successors(fields: dict[str, Any], mentions: tuple[str, ...]) -> None:
    with raises_sentence(*mentions):
        QkvEncoderConfig.from_dict({"model_type": "qkv_encoder", **fields})
