"""An image encoder's own fields: patches, what stands before them, what is pooled."""

from typing import Any

import pytest

from errors import raises_sentence
from qkv import QkvImageEncoderConfig


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
    config = QkvImageEncoderConfig(**given)
    assert (config.image_shape, config.grid, config.num_prefix_tokens) == (shape, grid, prefix)
    assert config.max_position_embeddings == positions
    # So patterns of rows and columns are those of the patches.
    assert (config.text_length, config.grid_columns) == (prefix, grid[1])


@pytest.mark.parametrize(
    ("fields", "mentions"),
    [
        ({"image_size": 225}, ("image_size=225", "patch_size=16")),
        ({"image_size": [0, 16]}, ("image_size=[0, 16]",)),
        ({"pooling": "highest"}, ("pooling='highest'", "mean")),
        ({"pooling": "distilled"}, ("pooling='distilled'", "distillation_token=True")),
        ({"pooling": "first_norm", "class_token": False}, ("pooling='first_norm'", "class_token=True")),
        ({"grid_columns": 4}, ("grid_columns=4", "QkvImageEncoderConfig")),
        ({"frontend": "tokens"}, ("frontend='tokens'", "QkvImageEncoderConfig", "'patches'")),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], mentions: tuple[str, ...]) -> None:
    with raises_sentence(*mentions):
        QkvImageEncoderConfig(**fields)
