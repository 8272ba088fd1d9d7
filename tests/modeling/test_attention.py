"""Attention is the papers' from projection to projection, for itself and across, with and without a cache."""

from functools import partial

import pytest
import torch
from torch.nn import functional as F
from transformers import DynamicCache, EncoderDecoderCache

import reference
from comparison import EXACT, assert_same, decoder, draw, encoder, exact, gate_of, jittered
from qkv import QkvDecoderModel
from qkv.modeling.attention import CrossAttention, SelfAttention
from qkv.modeling.context import LayerContext, Memory
from qkv.modeling.normalization import EachHeadNorm, WidthNorm
from qkv.modeling.position import POSITIONS
from qkv.modeling.position.hooks import PositionState

PLACES = torch.tensor([[0, 1, 2, 3, 4], [3, 4, 6, 7, 9]])
GROUPS = pytest.mark.parametrize("groups", [4, 2, 1], ids=["all heads", "grouped", "one"])


def config_of(stack=encoder, **fields):
    return stack(**{"num_attention_heads": 4, "attn_implementation": "eager", **fields})


def loop(module, x_q, x_kv, config, **given):
    layers = (module.q_proj, module.k_proj, module.v_proj, module.o_proj)
    weights = [tensor for layer in layers for tensor in (layer.weight, layer.bias)]
    scale = config.attention_multiplier
    heads = (config.num_attention_heads, config.num_key_value_heads)
    return reference.multi_head_attention(x_q, x_kv, *weights, *heads, scale=scale, gate=gate_of(module), **given)


@GROUPS
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("multiplier", [None, 1.0, 0.3])
def test_self_attention(groups, bias, multiplier):
    config = config_of(num_key_value_heads=groups, attention_bias=bias, attention_multiplier=multiplier)
    module, hidden = jittered(SelfAttention(config, 0)).eval(), draw(2, 5, 6)
    mixed, weights = module(hidden)
    expected, expected_weights = loop(module, hidden, hidden, config)
    assert_same(mixed, expected, hidden, *module.parameters())
    assert_same(weights, expected_weights, hidden)


@GROUPS
def test_self_attention_with_rotation_mask_and_bias(groups):
    """Every hook at once: rotated heads, a causal mask, a score bias."""
    config = config_of(decoder, position="rope", num_key_value_heads=groups)
    module, hidden, bias = jittered(SelfAttention(config, 0)).eval(), draw(2, 5, 6), draw(1, 4, 5, 5)
    with exact():
        rotation = POSITIONS["rope"](config).rotation(PLACES, torch.float64)
    causal = torch.ones(5, 5, dtype=torch.bool).tril()[None, None]
    mixed, _ = module(hidden, LayerContext(causal, PositionState(rotation, bias=bias)))
    frequencies = reference.rope_frequencies(4, 10000.0)

    def turn(heads):
        return reference.rotate_heads(heads, PLACES, frequencies)

    given = {"rotate_query": turn, "rotate_key": turn, "visible": lambda b, t, s: s <= t, "bias": bias}
    assert_same(mixed, loop(module, hidden, hidden, config, **given)[0], hidden, bias, *module.parameters())


@GROUPS
def test_cross_attention(groups):
    """Queries from the one, keys and values from the other, of another length and padded."""
    config = config_of(decoder, cross_attention=True, num_key_value_heads=groups)
    module, hidden, memory = jittered(CrossAttention(config, 0)).eval(), draw(2, 5, 6), draw(2, 7, 6)
    keep = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0]]).bool()
    mixed, weights = module(hidden, LayerContext(memory=Memory(memory, keep[:, None, None])))
    expected, expected_weights = loop(module, hidden, memory, config, visible=lambda b, t, s: bool(keep[b, s]))
    assert_same(mixed, expected, hidden, memory, *module.parameters())
    assert_same(weights, expected_weights, hidden, memory)


def norm_loop(module, norm):
    """The slow counterpart of a norm of queries or keys: (B, H, T, K) -> same."""
    kind, eps = module.config.norm, module.config.norm_eps

    def plain(x, weight, bias=None):
        return reference.layer_norm(x, weight, bias, eps) if kind == "layer" else reference.rms_norm(x, weight, eps)

    if isinstance(norm, EachHeadNorm):
        return lambda heads: reference.norm_each_head(heads, plain, norm.weight)
    inner = norm.norm if isinstance(norm, WidthNorm) else norm
    looped = partial(plain, weight=inner.weight, bias=getattr(inner, "bias", None))
    return partial(reference.norm_width, norm=looped) if isinstance(norm, WidthNorm) else looped


@GROUPS
@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("word", ["head", "each_head", "width"])
def test_queries_and_keys_may_be_normalised(groups, kind, word):
    """Before anything else happens to them, in self- and in cross-attention."""
    fields = {"query_key_norm": word, "norm": kind, "norm_eps": 0.1}
    config = config_of(decoder, cross_attention=True, num_key_value_heads=groups, **fields)
    hidden, memory = draw(2, 5, 6), draw(2, 7, 6)
    for module, given in ((SelfAttention(config, 0), (hidden,)), (CrossAttention(config, 0), (hidden, memory))):
        module = jittered(module).eval()
        hooks = {"rotate_query": norm_loop(module, module.q_norm), "rotate_key": norm_loop(module, module.k_norm)}
        mixed, _ = module(hidden, LayerContext(memory=Memory(*given[1:])))
        assert_same(mixed, loop(module, hidden, given[-1], config, **hooks)[0], *given, *module.parameters())


@GROUPS
@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("word", ["head", "head_after_rotation"])
def test_a_norm_stands_before_the_rotation_or_behind_it(groups, kind, word):
    config = config_of(
        decoder, position="rope", num_key_value_heads=groups, query_key_norm=word, norm=kind, norm_eps=0.1
    )
    module, hidden, places = jittered(SelfAttention(config, 0)).eval(), draw(2, 5, 6), torch.arange(5)[None]
    with exact():
        position = PositionState(rotation=POSITIONS["rope"](config).rotation(places, torch.float64))
        frequencies = reference.rope_frequencies(config.head_dim, config.rope_parameters["rope_theta"])
    turn = partial(reference.rotate_heads, positions=places.expand(2, -1), frequencies=frequencies)
    hooks = {}
    for name, norm in (("rotate_query", module.q_norm), ("rotate_key", module.k_norm)):
        steps = (norm_loop(module, norm), turn)[:: 1 if word == "head" else -1]
        hooks[name] = partial(lambda first, then, heads: then(first(heads)), *steps)
    mixed, _ = module(hidden, LayerContext(position=position))
    assert_same(mixed, loop(module, hidden, hidden, config, **hooks)[0], hidden, *module.parameters())


@GROUPS
@pytest.mark.parametrize("gate", [True, "unbiased"])
def test_heads_may_be_gated(groups, gate):
    """In self- and in cross-attention."""
    fields = {"attention_gate": gate}
    config = config_of(decoder, cross_attention=True, num_key_value_heads=groups, **fields)
    hidden, memory = draw(2, 5, 6), draw(2, 7, 6)
    for module, given in ((SelfAttention(config, 0), (hidden,)), (CrossAttention(config, 0), (hidden, memory))):
        module = jittered(module).eval()
        mixed, _ = module(hidden, LayerContext(memory=Memory(*given[1:])))
        assert_same(mixed, loop(module, hidden, given[-1], config)[0], *given, *module.parameters())


def test_a_gate_is_open_at_first():
    gate = QkvDecoderModel(config_of(decoder, attention_gate=True)).layers[0].self_attn.g_proj
    assert not gate.weight.any() and (gate.bias == 1).all()
    assert QkvDecoderModel(config_of(decoder, attention_gate="unbiased")).layers[0].self_attn.g_proj.bias is None


def test_only_the_listed_projections_have_a_bias():
    for biased in (["q_proj", "k_proj", "v_proj"], ["o_proj"]):
        module = SelfAttention(config_of(attention_bias=biased), 0)
        assert {name.split(".")[0] for name, _ in module.named_parameters() if name.endswith("bias")} == {*biased}


def test_causality_and_window_are_said_to_backends_that_build_no_mask():
    """sdpa takes a module without `is_causal` for a causal one."""
    assert [SelfAttention(config_of(stack), 0).is_causal for stack in (encoder, decoder)] == [False, True]
    assert CrossAttention(config_of(decoder, cross_attention=True), 0).is_causal is False
    config = config_of(pattern=["full", "sliding", "block_sparse"], sliding_window=3)
    assert [SelfAttention(config, layer).sliding_window for layer in range(3)] == [None, 3, None]


@GROUPS
def test_cached_keys_and_values_are_read_again(groups):
    config = config_of(decoder, num_key_value_heads=groups)
    module, hidden = jittered(SelfAttention(config, 1)).eval(), draw(2, 5, 6)
    causal = torch.ones(5, 5, dtype=torch.bool).tril()[None, None]
    whole, _ = module(hidden, LayerContext(causal))
    for wrap in (lambda cache: cache, lambda cache: EncoderDecoderCache(cache, DynamicCache())):
        cache = DynamicCache(config=config)
        first, _ = module(hidden[:, :3], LayerContext(causal[..., :3, :3], cache=wrap(cache)))
        second, _ = module(hidden[:, 3:], LayerContext(causal[..., 3:, :], cache=wrap(cache)))
        assert (torch.cat((first, second), 1) - whole).abs().max() <= EXACT
        # Only the key-value heads are kept, never their copies.
        assert cache.layers[1].keys.shape == (2, groups, 5, 4)


@pytest.mark.parametrize("cached", [False, True])
def test_a_position_is_added_to_queries_and_keys_and_never_to_values(cached):
    hidden, memory, placed, keyed = draw(2, 5, 6), draw(2, 7, 6), draw(2, 5, 6), draw(2, 7, 6)
    position = PositionState(query_key=placed, memory_key=keyed)
    alone = jittered(SelfAttention(config_of(), 0)).eval()
    across = jittered(CrossAttention(config_of(decoder, cross_attention=True), 0)).eval()
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache()) if cached else None

    def expected(module, keys, values):
        query, key = module.heads(module.q_proj(hidden + placed)), module.heads(module.k_proj(keys))
        mixed = F.scaled_dot_product_attention(query, key, module.heads(module.v_proj(values)), scale=module.scaling)
        return module.o_proj(mixed.transpose(1, 2).flatten(2))

    assert_same(
        alone(hidden, LayerContext(position=position))[0], expected(alone, hidden + placed, hidden), hidden, placed
    )
    for _ in range(2 if cached else 1):
        found, _ = across(hidden, LayerContext(position=position, memory=Memory(memory), cache=cache))
        assert_same(found, expected(across, memory + keyed, memory), hidden, memory, placed, keyed)


def test_dropout_acts_in_training_only():
    config = config_of(attention_dropout=0.5)
    module, hidden = jittered(SelfAttention(config, 0)), draw(2, 5, 6)
    _, weights = module.train()(hidden)
    _, whole = module.eval()(hidden)
    assert (weights == 0).any() and (whole > 0).all()
