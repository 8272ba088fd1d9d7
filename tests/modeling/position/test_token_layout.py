"""Tokens are counted without padding, document by document, and cached ones keep their distance."""

import pytest
import torch
from transformers import DynamicCache

from comparison import decoder, encoder
from qkv.modeling.masks.masking import build_masks
from qkv.modeling.position.token_layout import MaskSizes, Packing, lay_out

STACKS = pytest.mark.parametrize("stack", [encoder, decoder], ids=["both ways", "causal"])


@STACKS
def test_positions_count_real_tokens(stack):
    config = stack()
    keep = torch.tensor([[1, 1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1, 1]])
    built = build_masks(config, torch.zeros(2, 7, 6), MaskSizes.of(config, 7, None), keep)
    assert torch.equal(built.positions[keep.bool()], torch.arange(5).repeat(2))
    assert torch.equal(built.positions, built.key_positions)


def test_cached_keys_keep_their_distance_to_given_positions():
    config, keep = decoder(num_hidden_layers=1), torch.ones(2, 7)
    keep[1, :2] = 0
    cache = DynamicCache(config=config)
    states = torch.zeros(2, 3, 4, 4)
    cache.update(states, states, 0)
    given = torch.tensor([[24, 25, 26], [22, 23, 24]])
    built = build_masks(config, torch.zeros(2, 3, 6), MaskSizes.of(config, 3, cache), keep, Packing(given))
    assert torch.equal(built.positions, given)
    assert built.key_positions[0].tolist() == [20, 21, 22, 23, 24, 25, 26]
    assert built.key_positions[1, 2:].tolist() == [20, 21, 22, 23, 24]


def test_documents_in_a_row_are_counted_apart():
    keep = torch.tensor([[1, 1, 1, 1, 1, 1, 0]])
    given = torch.tensor([[4, 5, 0, 1, 0, 1, 1]])
    layout = lay_out(torch.zeros(1, 7, 6), MaskSizes(0, 7, 7, None), keep, Packing(given))
    assert layout.documents.tolist() == [[0, 0, 1, 1, 2, 2, 2]]
    assert layout.tokens.tolist() == [[0, 1, 0, 1, 0, 1, 1]]
    assert layout.padding.tolist() == [[True] * 6 + [False]]
