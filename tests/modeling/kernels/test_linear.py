"""Linear attention in sums equals its quadratic formula: values and gradients, both ways, across, packed and padded."""

import copy
from typing import get_args

import pytest
import torch
from transformers import DynamicCache, EncoderDecoderCache

import reference
from comparison import assert_same, decoder, draw, encoder, exact, gate_of, jittered
from errors import raises_sentence
from qkv.configuration.axes import FeatureMapName
from qkv.modeling.context import LayerContext, Memory
from qkv.modeling.kernels import chunks, linear
from qkv.modeling.kernels.linear import LinearCrossAttention, LinearSelfAttention
from qkv.modeling.kernels.state_cache import StateLayer
from qkv.modeling.masks.masking import TokenMask
from qkv.modeling.position import POSITIONS
from qkv.modeling.position.hooks import PositionState

MAPS = pytest.mark.parametrize("feature_map", get_args(FeatureMapName))
GROUPS = pytest.mark.parametrize("groups", [4, 2, 1], ids=["all heads", "grouped", "one"])
STACKS = pytest.mark.parametrize("stack", [encoder, decoder], ids=["both ways", "causal"])
# Below one chunk of three, exactly two, and not a multiple.
LENGTHS = pytest.mark.parametrize("length", [1, 2, 6, 7])


def call(module, hidden, *given, output_attentions=False, past_key_values=None):
    """Run a kernel as a layer does."""
    options = {"weights": output_attentions, "cache": past_key_values}
    if hasattr(module, "cached_key_value"):
        return module(hidden, LayerContext(memory=Memory(*given), **options))
    return module(hidden, LayerContext(*given, **options))


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_TOKENS", 3)
    monkeypatch.setattr(linear, "segment_tokens", lambda query: 6)


def config_of(stack, **fields):
    return stack(**{"num_attention_heads": 4, "kernel": "linear", **fields})


def loop(module, query, memory, **given):
    """The module's heads in the formula of the paper, and its last projection."""
    heads = [module.query(query), module.key(memory), module.value(memory)]
    mixed, weights = reference.linear_attention(*heads, module.config.feature_map, **given)
    return module.o_proj(reference.gate_values(mixed.transpose(1, 2).flatten(2), query, gate_of(module))), weights


def rule(config, **given):
    return reference.visibility(*([reference.causal] if config.causal else []), **given)


def whole(module, hidden, *given, **kwargs):
    """Mixed values and weights of a forward that asks for them."""
    mixed, weights = call(module, hidden, *given, output_attentions=True, **kwargs)
    assert torch.equal(mixed, call(module, hidden, *given, **kwargs)[0])
    return mixed, weights


@pytest.mark.parametrize("name", get_args(FeatureMapName))
def test_feature_maps(name):
    vectors = draw(5, 7)
    expected = torch.stack([reference.FEATURE_MAPS[name](vector) for vector in vectors])
    assert_same(linear.FEATURE_MAPS[name](vectors), expected, vectors)
    assert (expected >= 0).all()


@STACKS
@GROUPS
@LENGTHS
@MAPS
def test_self_attention(stack, groups, length, feature_map):
    config = config_of(stack, num_key_value_heads=groups, feature_map=feature_map, attention_gate=groups == 2)
    module, hidden = jittered(LinearSelfAttention(config, 0)), draw(2, length, 6)
    mixed, weights = whole(module, hidden)
    expected, expected_weights = loop(module, hidden, hidden, visible=rule(config))
    assert_same(mixed, expected, hidden, *module.parameters())
    assert_same(weights, expected_weights, hidden)


@STACKS
@pytest.mark.parametrize("partial", [1.0, 0.5])
def test_rotated_features(stack, partial):
    """A rotation turns the features, and not what normalises them."""
    parameters = {"rope_type": "default", "rope_theta": 10.0, "partial_rotary_factor": partial}
    config = config_of(stack, position="rope", num_key_value_heads=2, rope_parameters=parameters)
    module, hidden, places = jittered(LinearSelfAttention(config, 0)), draw(2, 7, 6), torch.arange(14).view(2, 7)
    with exact():
        rotation = POSITIONS["rope"](config).rotation(places, torch.float64)
    mixed, weights = whole(module, hidden, None, PositionState(rotation))
    frequencies, _ = reference.rope_frequencies(int(4 * partial), 10.0)

    def turn(heads):
        return reference.rotate_heads(heads, places, frequencies)

    given = {"rotate_query": turn, "rotate_key": turn, "visible": rule(config)}
    expected, expected_weights = loop(module, hidden, hidden, **given)
    assert_same(mixed, expected, hidden, *module.parameters())
    assert_same(weights, expected_weights, hidden)


PADDING = {
    "right": torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0]]).bool(),
    "left": torch.tensor([[1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1]]).bool(),
    "inside": torch.tensor([[1, 0, 1, 1, 0, 1, 1], [0, 1, 0, 0, 1, 1, 0]]).bool(),
    "a row": torch.tensor([[0, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1]]).bool(),
}
DOCUMENTS = {
    "one": torch.zeros(1, 7, dtype=torch.long),
    "of all lengths": torch.tensor([[0, 0, 0, 0, 1, 2, 2]]),
    "by row": torch.tensor([[0, 1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 2]]),
    "of a token": torch.arange(7)[None],
    "of chunks": torch.tensor([[0, 0, 0, 1, 1, 1, 3]]),
}


@STACKS
@pytest.mark.parametrize("side", PADDING)
def test_padding_is_read_by_nobody(stack, side):
    config, keep = config_of(stack), PADDING[side]
    module, hidden = jittered(LinearSelfAttention(config, 0)), draw(2, 7, 6)
    mixed, weights = whole(module, hidden, TokenMask(keep, None))
    expected, expected_weights = loop(module, hidden, hidden, visible=rule(config, keep=keep))
    assert_same(mixed, expected, hidden, *module.parameters())
    assert_same(weights, expected_weights, hidden)


@STACKS
@pytest.mark.parametrize("position", ["none", "rope"])
@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("side", [None, "inside"])
def test_documents_are_separate(stack, position, name, side):
    config, documents = config_of(stack, position=position, num_key_value_heads=2), DOCUMENTS[name].expand(2, -1)
    keep = None if side is None else PADDING[side]
    module, hidden = jittered(LinearSelfAttention(config, 0)), draw(2, 7, 6)
    places = torch.arange(7)[None]
    with exact():
        state = PositionState(POSITIONS[position](config).rotation(places, torch.float64))
    mixed, weights = whole(module, hidden, TokenMask(keep, DOCUMENTS[name]), state)
    frequencies, _ = reference.rope_frequencies(4, 10000.0)

    def turn(heads):
        return reference.rotate_heads(heads, places.expand(2, -1), frequencies)

    turns = {"rotate_query": turn, "rotate_key": turn} if position == "rope" else {}
    seen = rule(config, keep=keep, documents=documents)
    expected, expected_weights = loop(module, hidden, hidden, visible=seen, **turns)
    assert_same(mixed, expected, hidden, *module.parameters())
    assert_same(weights, expected_weights, hidden)


@GROUPS
@MAPS
@pytest.mark.parametrize("side", [None, *PADDING])
def test_cross_attention(groups, feature_map, side):
    fields = {"num_key_value_heads": groups, "feature_map": feature_map, "attention_gate": groups == 2}
    config = config_of(decoder, cross_attention=True, **fields)
    module, hidden, memory = jittered(LinearCrossAttention(config, 0)), draw(2, 4, 6), draw(2, 7, 6)
    mask = None if side is None else TokenMask(PADDING[side], None)
    mixed, weights = whole(module, hidden, memory, mask)
    keep = torch.ones(2, 7).bool() if side is None else PADDING[side]
    expected, expected_weights = loop(module, hidden, memory, visible=reference.visibility(keep=keep))
    assert_same(mixed, expected, hidden, memory, *module.parameters())
    assert_same(weights, expected_weights, hidden, memory)


def test_sums_over_memory_are_cached():
    config = config_of(decoder, cross_attention=True)
    module, hidden, memory = jittered(LinearCrossAttention(config, 0)), draw(2, 4, 6), draw(2, 7, 6)
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    cache.cross_attention_cache.layers.append(StateLayer())
    mask = TokenMask(PADDING["left"], None)
    expected, weights = whole(module, hidden, memory, mask)
    assert_same(call(module, hidden, memory, mask, past_key_values=cache)[0], expected)
    assert cache.is_updated == {0: True} and cache.cross_attention_cache.get_seq_length() == 7
    forgotten = torch.full_like(memory, torch.nan)
    assert_same(call(module, hidden[:, :1], forgotten, None, past_key_values=cache)[0], expected[:, :1])
    # Weights need the memory itself.
    assert_same(call(module, hidden, memory, mask, past_key_values=cache, output_attentions=True)[1], weights)


def cached(module, hidden, padding, steps):
    cache, outputs, first = DynamicCache(), [], 0
    cache.layers.append(StateLayer())
    for step in steps:
        own = slice(first, first + step)
        mask = None if padding is None else TokenMask(padding[:, own], None)
        outputs.append(call(module, hidden[:, own], mask, past_key_values=cache)[0])
        first += step
    return torch.cat(outputs, 1), cache


@pytest.mark.parametrize("steps", [[7], [1] * 7, [4, 1, 2], [2, 5], [3, 3, 1]], ids=str)
@pytest.mark.parametrize("side", [None, "left", "right"])
def test_a_state_stands_for_all_tokens_before(steps, side):
    module, hidden = jittered(LinearSelfAttention(config_of(decoder), 0)), draw(2, 7, 6)
    keep = None if side is None else PADDING[side]
    expected = call(module, hidden, None if keep is None else TokenMask(keep, None))[0]
    actual, cache = cached(module, hidden, keep, steps)
    assert_same(actual, expected, hidden, *module.parameters())
    (layer,) = cache.layers
    assert [part.shape for part in layer.state] == [(2, 4, 4, 4), (2, 4, 4)] and layer.length == 7


def test_sums_are_in_single_precision_at_least(monkeypatch):
    """Values of lower precision, and what autocast computes, come from sums that lose no tokens."""
    monkeypatch.setattr(chunks, "CHUNK_TOKENS", 64)
    torch.manual_seed(0)
    module, hidden = LinearSelfAttention(config_of(decoder), 0), torch.randn(1, 3000, 6)
    exactly = copy.deepcopy(module).double()(hidden.double())[0]
    assert (call(module, hidden)[0] - exactly).abs().max() <= 1e-5
    with torch.autocast("cpu", torch.bfloat16):
        assert (call(module, hidden)[0] - exactly).abs().max() <= 2e-2
    assert (module.bfloat16()(hidden.bfloat16())[0] - exactly).abs().max() <= 2e-2


def test_weights_of_forgotten_tokens_are_refused():
    module, hidden = LinearSelfAttention(config_of(decoder), 0), torch.randn(2, 3, 6)
    cache = cached(module, hidden, None, [3])[1]
    with raises_sentence("output_attentions=True", "use_cache=False"):
        call(module, hidden, past_key_values=cache, output_attentions=True)
