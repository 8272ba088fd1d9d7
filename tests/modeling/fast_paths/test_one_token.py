"""A step of one token has the positions of the mask that it goes without."""

from functools import partial
from typing import Any

import pytest
import torch
from transformers import DynamicCache, StaticCache

from comparison import decoder
from qkv.modeling.fast_paths.one_token import one_token_masks
from qkv.modeling.masks.masking import build_mask, build_masks
from qkv.modeling.position.token_layout import MaskSizes, Packing

BATCH, CACHED = 2, 5
ONES = torch.ones(BATCH, CACHED + 1)


def hidden(batch: int = BATCH, length: int = 1) -> torch.Tensor:
    return torch.zeros(batch, length, 6)


def sizes_of(config: Any, length: int = 1, cache: Any = None) -> MaskSizes:
    cache = cache or DynamicCache(config=config)
    cache.update(torch.zeros(BATCH, 3, CACHED, 4), torch.zeros(BATCH, 3, CACHED, 4), 0)
    return MaskSizes.of(config, length, cache)


@pytest.mark.parametrize("given", [None, [[5]], [[9], [30]]], ids=str)
@pytest.mark.parametrize("keep", [None, ONES], ids=["no mask", "mask of ones"])
def test_positions_are_those_of_a_batch_with_padding(keep: Any, given: Any) -> None:
    config = decoder(pattern="full", num_hidden_layers=1)
    given, sizes = None if given is None else torch.tensor(given), sizes_of(config)
    built = one_token_masks(config, hidden(), sizes, keep, Packing(given))
    assert built is not None and built.masks == {"full": None}
    padded = torch.ones(BATCH + 1, CACHED + 1)
    padded[-1, 0] = 0
    more = given if given is None or len(given) == 1 else torch.cat((given, given[:1]))
    whole = build_masks(config, hidden(BATCH + 1), sizes, padded, Packing(more), build=partial(build_mask, "eager"))
    assert whole.masks["full"] is not None
    for name in ("positions", "key_positions"):
        assert torch.equal(getattr(built, name).expand(BATCH, -1), getattr(whole, name)[:BATCH]), name


@pytest.mark.parametrize(
    "wrong", [(torch.ones(BATCH, 7), "does not fit"), (torch.full((BATCH, 6), -1.0), "holds numbers from -1.0")]
)
def test_a_wrong_mask_of_ones_is_refused(wrong: Any) -> None:
    config = decoder(pattern="full", num_hidden_layers=1)
    with pytest.raises(ValueError, match=wrong[1]):
        one_token_masks(config, hidden(), sizes_of(config), wrong[0])


def test_a_mask_is_built_where_something_is_hidden() -> None:
    config = decoder(pattern="full", num_hidden_layers=1)
    padded = ONES.clone()
    padded[0, 0] = 0
    assert one_token_masks(config, hidden(), sizes_of(config), padded) is None
    assert one_token_masks(config, hidden(length=2), sizes_of(config, 2), None) is None
    roomy = sizes_of(config, cache=StaticCache(config, max_cache_len=9))
    assert one_token_masks(config, hidden(), roomy, None) is None
    ends = torch.tensor([0, 1, 2])
    assert one_token_masks(config, hidden(), sizes_of(config), None, Packing(cu_seq_lens_q=ends)) is None
    near = decoder(pattern="sliding", sliding_window=3, num_hidden_layers=1)
    assert one_token_masks(near, hidden(), sizes_of(near), None) is None
