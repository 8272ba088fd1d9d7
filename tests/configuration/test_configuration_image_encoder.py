"""An image encoder's own fields: patches, what stands before them, what is pooled."""

from typing import Any

import pytest

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
