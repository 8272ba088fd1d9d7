"""A text encoder's own fields: widths, pooling, and what is not for it."""

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
        ({"pooling": "end"}, ("pooling='end'", "eos_token_id")),
        ({"pooling": "end", "eos_token_id": [1, 2]}, ("pooling='end'", "eos_token_id")),
        ({"pooling": "distilled"}, ("pooling='distilled'", "mean")),
        ({"layer_scale": 0.1}, ("layer_scale=0.1", "QkvEncoderConfig")),
        ({"parallel_residual": True}, ("parallel_residual=True", "QkvEncoderConfig")),
    ],
)
def test_what_is_not_for_texts_is_refused(fields: dict[str, Any], mentions: tuple[str, ...]) -> None:
    with raises_sentence(*mentions):
        QkvEncoderConfig(**fields)


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
