"""A cache of states: of one size, with rows that move, and tokens that are taken back."""

import pytest
import torch
from transformers import DynamicCache, EncoderDecoderCache, StaticCache

from comparison import assert_same, decoder, draw
from errors import raises_sentence
from qkv.modeling.kernels.linear import linear_state_after
from qkv.modeling.kernels.state_cache import StateLayer, hold_states, state_layer

pytestmark = pytest.mark.upstream


def read(tokens):
    return draw(2, 3, tokens, 4), draw(2, 3, tokens, 4), draw(2, 3, tokens, 5)


def join(*parts):
    return tuple(torch.cat(each, dim=2) for each in zip(*parts, strict=True))


def store(layer, *parts):
    for part in parts:
        layer.store(linear_state_after(layer.state, part), part, linear_state_after)


def same(layer, tokens):
    assert layer.get_seq_length() == tokens[0].shape[2]
    for actual, expected in zip(layer.state, linear_state_after(None, tokens), strict=True):
        assert_same(actual, expected)


def test_the_state_does_not_grow():
    layer, parts = StateLayer(), [read(5), read(1), read(3)]
    assert layer.state is None and layer.get_seq_length() == 0
    store(layer, *parts)
    same(layer, join(*parts))
    assert (layer.keys.shape, layer.values.shape) == ((2, 3, 4, 5), (2, 3, 4)) and layer.read is None
    assert layer.get_mask_sizes(2) == (11, 0) and layer.get_max_length() == -1


@pytest.mark.parametrize("back", [0, 1, 3, 4])
@pytest.mark.parametrize("first", [0, 5])
def test_tokens_are_taken_back(first, back):
    """Any number of those that were read since recording began, whichever calls read them; and then again."""
    layer, before = StateLayer(), [read(first)] if first else []
    store(layer, *before)
    layer.activate_past_recording()
    parts = [read(3), read(1)]
    store(layer, *parts)
    layer.crop(-back)
    kept = tuple(part[:, :, : first + 4 - back] for part in join(*before, *parts))
    if kept[0].shape[2]:
        same(layer, kept)
    after = read(2)
    store(layer, after)
    same(layer, join(kept, after))
    layer.crop(-1)
    same(layer, tuple(part[:, :, :-1] for part in join(kept, after)))


def test_what_was_not_recorded_stays():
    layer = StateLayer()
    store(layer, read(4))
    for tokens in (-1, 1):
        with raises_sentence(f"crop({tokens})", "activate_past_recording"):
            layer.crop(tokens)
    layer.crop(0)
    assert layer.get_seq_length() == 4


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        (lambda layer: layer.reorder_cache(torch.tensor([1, 1])), [1, 1]),
        (lambda layer: layer.batch_select_indices(torch.tensor([1])), [1]),
        (lambda layer: layer.batch_repeat_interleave(2), [0, 0, 1, 1]),
    ],
)
def test_rows_move(change, rows):
    layer, before, after = StateLayer(), read(3), read(2)
    layer.activate_past_recording()
    store(layer, before)
    change(layer)
    kept = tuple(part[rows] for part in before)
    after = tuple(part[:1].expand(len(rows), -1, -1, -1) for part in after)
    store(layer, after)
    same(layer, join(kept, after))
    layer.crop(-3)
    same(layer, tuple(part[:, :, :2] for part in join(kept, after)))
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
