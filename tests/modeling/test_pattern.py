"""Windows over rows and columns end where they should."""

from functools import partial

import pytest
import torch

import reference
from comparison import decoder
from qkv.modeling.masks.masking import build_mask, build_masks
from qkv.modeling.position.token_layout import MaskSizes

LENGTH = 13


@pytest.mark.parametrize("kernel", [1, 3, 5, 9])
def test_windows_wider_than_a_row(kernel):
    config = decoder(pattern="convolutional", text_length=2, grid_columns=4, grid_kernel=kernel)
    wanted = [
        [key <= query and reference.convolutional(query, key, 2, 4, kernel) for key in range(LENGTH)]
        for query in range(LENGTH)
    ]
    sizes = MaskSizes.of(config, LENGTH, None)
    mask = build_masks(config, torch.zeros(1, LENGTH, 6), sizes, build=partial(build_mask, "eager")).masks[
        "convolutional"
    ]
    assert torch.equal(mask[0, 0] == 0, torch.tensor(wanted))
