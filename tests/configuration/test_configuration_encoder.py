"""An encoder's own fields: tokens or patches, what stands before the patches, what is pooled."""

from dataclasses import fields
from typing import Any

import pytest

from qkv import QkvEncoderConfig
from qkv.configuration.configuration_spectrogram import SpectrogramConfig

DEFAULTS = {
    "frontend": "tokens",
    "vocab_size": 30522,
    "type_vocab_size": 0,
    "scale_embedding": False,
    "embedding_size": None,
    "image_size": 224,
    "patch_size": 16,
    "num_channels": 3,
    "patch_bias": True,
    "class_token": True,
    "distillation_token": False,
    "mask_token": False,
    "interpolate_positions": False,
    "pooling": "first",
    "head_transform": False,
    "head_act": None,
    "head_bias": True,
    "lm_head_bias": True,
    "pooling_dropout": 0.0,
    "classifier_dropout": 0.0,
    "qa_dropout": 0.0,
    "label_smoothing": 0.0,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
}


def test_defaults() -> None:
    inherited = {field.name for field in fields(SpectrogramConfig)}
    assert {field.name: field.default for field in fields(QkvEncoderConfig) if field.name not in inherited} == DEFAULTS


@pytest.mark.parametrize(
    ("given", "shape", "grid", "prefix", "positions"),
    [
        ({}, (224, 224), (14, 14), 1, 197),
        ({"image_size": (32, 48)}, (32, 48), (2, 3), 1, 7),
        ({"image_size": [32, 48], "patch_size": 8}, (32, 48), (4, 6), 1, 25),
        ({"distillation_token": True}, (224, 224), (14, 14), 2, 198),
        ({"class_token": False, "pooling": "mean"}, (224, 224), (14, 14), 0, 196),
    ],
)
def test_images_become_a_grid_behind_a_prefix(
    given: dict[str, Any], shape: tuple[int, int], grid: tuple[int, int], prefix: int, positions: int
) -> None:
    config = QkvEncoderConfig(frontend="patches", **given)
    assert (config.image_shape, config.grid, config.num_prefix_tokens) == (shape, grid, prefix)
    assert config.max_position_embeddings == positions


def test_tokens_have_no_prefix_and_keep_their_positions() -> None:
    config = QkvEncoderConfig(distillation_token=True, max_position_embeddings=77)
    assert (config.num_prefix_tokens, config.max_position_embeddings) == (0, 77)


def test_an_image_size_is_checked_against_patches_only_where_there_are_some() -> None:
    assert QkvEncoderConfig(image_size=225).frontend == "tokens"


def test_embeddings_are_as_wide_as_the_layers_unless_given() -> None:
    config = QkvEncoderConfig(hidden_size=12, num_attention_heads=3)
    assert config.embedding_size == config.embedding_width == 12
    assert QkvEncoderConfig(embedding_size=8).embedding_width == 8
    with pytest.raises(ValueError, match="embedding_size=8 is for frontend='tokens'; leave it out for patches"):
        QkvEncoderConfig(frontend="patches", embedding_size=8)


def test_last_recorded_state_is_normalised_for_text_only() -> None:
    assert QkvEncoderConfig().tie_last_hidden_states
    assert not QkvEncoderConfig(frontend="patches").tie_last_hidden_states
