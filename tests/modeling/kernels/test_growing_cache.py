"""Caches that grow in place hold the keys and values of transformers' dynamic layers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers.cache_utils import DynamicCache, DynamicLayer

import tiny
from qkv.modeling import QkvDecoderForCausalLM
from qkv.modeling.kernels.growing_cache import GrowingLayer, SourceLayer

pytestmark = pytest.mark.upstream

ORDER = torch.tensor([2, 0, 0])
CHANGES: list[Callable[[Any], None]] = [
    *(lambda layer: layer.crop(-2), lambda layer: layer.reorder_cache(ORDER), lambda layer: layer.crop(0)),
    *(lambda layer: layer.batch_select_indices(ORDER), lambda layer: layer.batch_repeat_interleave(1)),
    *(lambda layer: setattr(layer, "keys", layer.keys.flip(0)), lambda layer: setattr(layer, "values", -layer.values)),
    lambda layer: layer.reset(),
]


def tokens(count: int) -> tuple[Tensor, Tensor]:
    return torch.randn(3, 2, count, 4), torch.randn(3, 2, count, 6)


def assert_equal(one: Any, other: Any) -> None:
    assert_close((one.keys, one.values), (other.keys, other.values), rtol=0, atol=0)


@torch.no_grad()
def test_a_growing_layer_holds_the_tokens_of_a_dynamic_one() -> None:
    growing, dynamic, longer = GrowingLayer(), DynamicLayer(), GrowingLayer()
    longer.update(*tokens(5))
    # Nothing is copied.
    assert len({longer.update(*tokens(1))[0].data_ptr() for _ in range(40)}) == 1
    for change in CHANGES:
        for count in (7, 1, 1, 300, 1):
            new = tokens(count)
            assert_close(growing.update(*new), dynamic.update(*new), rtol=0, atol=0)
            assert growing.get_mask_sizes(1) == dynamic.get_mask_sizes(1)
        change(growing)
        change(dynamic)
        assert_equal(growing, dynamic)


@torch.no_grad()
def test_beams_copy_only_rows_that_go_on_elsewhere() -> None:
    growing, dynamic = GrowingLayer(), DynamicLayer()
    for order in ([0, 1, 2], [1, 0, 0], [2, 2, 1], [0, 0, 0]):
        new = tokens(2)
        place = growing.update(*new)[0].data_ptr()
        dynamic.update(*new)
        for layer in (growing, dynamic):
            layer.reorder_cache(torch.tensor(order))
        assert_equal(growing, dynamic)
        assert growing.keys.data_ptr() == place
    for layer in (growing, dynamic):
        layer.reorder_cache(torch.tensor([2, 1]))  # fewer rows go on
    assert_equal(growing, dynamic)


@pytest.mark.parametrize(
    ("order", "same"), [([1, 1, 2, 3], True), ([1, 0, 3, 2], True), ([2, 3, 0, 1], False), ([0, 0], False)]
)
def test_beams_share_the_keys_of_their_source(order: list[int], *, same: bool) -> None:
    sources = torch.randn(2, 3, 5, 4).repeat_interleave(2, dim=0)
    layer, dynamic = SourceLayer(2), DynamicLayer()
    for each in (layer, dynamic):
        each.update(sources, -sources)
    place = layer.keys.data_ptr()
    for each in (layer, dynamic):
        each.reorder_cache(torch.tensor(order))
    assert_equal(layer, dynamic)
    assert (layer.keys.data_ptr() == place) is same


def test_generation_returns_a_cache_that_goes_on() -> None:
    model, options = QkvDecoderForCausalLM(tiny.decoder()).eval(), {"max_new_tokens": 4, "do_sample": False}
    output = model.generate(tiny.text()["input_ids"], **options, return_dict_in_generate=True)
    cache = output.past_key_values
    assert isinstance(cache, DynamicCache) and {type(layer) for layer in cache.layers} == {GrowingLayer}
    again = model.generate(output.sequences, past_key_values=cache, **options)
    assert torch.equal(again, model.generate(output.sequences, **options))
