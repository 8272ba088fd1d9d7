"""A cache of states: of one size, with rows that move."""

import pytest
import torch
from transformers import DynamicCache, EncoderDecoderCache, StaticCache

from comparison import decoder, draw
from errors import raises_sentence
from qkv.modeling.kernels.state_cache import StateLayer, hold_states, state_layer

pytestmark = pytest.mark.upstream


def test_the_state_does_not_grow():
    layer, first, last = StateLayer(), (draw(2, 3, 4, 5), draw(2, 3, 4)), (draw(2, 3, 4, 5), draw(2, 3, 4))
    assert layer.state is None and layer.get_seq_length() == 0
    layer.store(first, 5)
    layer.store(last, 4)
    assert layer.state == last and layer.get_seq_length() == 9
    assert layer.get_mask_sizes(2) == (11, 0) and layer.get_max_length() == -1 and not layer.is_croppable
    with pytest.raises(ValueError, match="crop"):
        layer.crop(-1)


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        (lambda layer: layer.reorder_cache(torch.tensor([1, 1])), [1, 1]),
        (lambda layer: layer.batch_select_indices(torch.tensor([1])), [1]),
        (lambda layer: layer.batch_repeat_interleave(2), [0, 0, 1, 1]),
    ],
)
@pytest.mark.parametrize("parts", [1, 2])
def test_rows_move(change, rows, parts):
    layer, state = StateLayer(), (draw(2, 3, 4, 5), draw(2, 3, 4))[:parts]
    layer.store(state, 3)
    change(layer)
    for actual, expected in zip(layer.state, state, strict=True):
        assert torch.equal(actual, expected[rows])
    layer.reset()
    assert layer.state is None and layer.get_seq_length() == 0
    change(layer)
    assert layer.state is None


def test_any_empty_cache_holds_states():
    config = decoder(kernel="linear")
    for cache in (DynamicCache(), DynamicCache(config=config), StaticCache(config, max_cache_len=9)):
        hold_states(config, cache)
        layers = list(cache.layers)
        assert [type(layer) for layer in layers] == [StateLayer] * 3
        hold_states(config, cache)
        assert cache.layers == layers and state_layer(cache, 1) is layers[1]
    both = EncoderDecoderCache(DynamicCache(config=config), DynamicCache())
    hold_states(config, both)
    layers = [*both.self_attention_cache.layers, *both.cross_attention_cache.layers]
    assert {type(layer) for layer in layers} == {StateLayer}
    assert state_layer(both, 2) is both.self_attention_cache.layers[2] and state_layer(None, 0) is None


def test_keys_and_values_stay_with_softmax():
    cache = DynamicCache()
    cache.update(torch.ones(1, 3, 2, 4), torch.ones(1, 3, 2, 4), 0)
    hold_states(decoder(), cache)
    assert cache.get_seq_length() == 2
    with raises_sentence("past_key_values", "kernel='linear'"):
        hold_states(decoder(kernel="linear"), cache)
    held = DynamicCache()
    hold_states(decoder(kernel="linear"), held)
    with raises_sentence("keys and values"):
        held.update(torch.ones(1, 3, 2, 4), torch.ones(1, 3, 2, 4), 0)
