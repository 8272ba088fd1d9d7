"""Attention in chunks is the softmax of the slow loop, row by row and head by head."""

from unittest import mock

import pytest
import torch

import reference
from comparison import assert_same, draw, encoder, exact
from qkv.modeling.fast_paths import windows
from qkv.modeling.fast_paths.window_attention import Scores, attend_in_windows
from qkv.modeling.masks.masking import mask_rule
from qkv.modeling.position.token_layout import TokenLayout

LENGTH = 13
LOOPS = {
    "sliding": lambda q, k: reference.sliding(q, k, 3),
    "dilated": lambda q, k: reference.dilated(q, k, 3, 2),
    "fixed": lambda q, k: reference.fixed(q, k, 4, 1),
    "random": lambda q, k: reference.random(q, k, 4, 1, 0, causal=False),
}
FIELDS = {"sliding_window": 3, "block_size": 4, "fixed_columns": 1, "num_random_blocks": 1}


@pytest.mark.parametrize("chosen", [(), (6,), (0, 12)])
@pytest.mark.parametrize("pattern", LOOPS)
def test_values_and_gradients_of_grouped_heads(pattern: str, chosen: tuple[int, ...]) -> None:
    heads = [draw(2, count, LENGTH, 4) for count in (4, 2, 2)]
    marked = torch.zeros(2, LENGTH, dtype=torch.bool)
    marked[1, list(chosen)] = True
    layout = TokenLayout(None, torch.arange(LENGTH).expand(2, -1), None, marked)
    config = encoder(pattern=pattern, **FIELDS)
    with exact(), mock.patch.multiple(windows, QUERIES=4, SHARE=100.0):
        predicate, _ = mask_rule(config, pattern, layout)
        mask = windows.window_mask(config, pattern, predicate, layout, windows.TokenRange(0, LENGTH, 0, LENGTH))
        actual = attend_in_windows(tuple(heads), mask, Scores(0.5, 0.0, None))
    rows = ((), chosen)

    def visible(row: int, query: int, key: int) -> bool:
        return LOOPS[pattern](query, key) or reference.touches(query, key, rows[row])

    key, value = (each.repeat_interleave(2, dim=1) for each in heads[1:])
    expected, _ = reference.attention(heads[0], key, value, 0.5, visible)
    assert_same(actual, expected.transpose(1, 2), *heads)
