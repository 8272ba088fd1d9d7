"""Kernels with a state compute the sums and recurrences of their papers, in chunks: packed, padded and cached."""

import copy
import itertools
from typing import Any, get_args

import pytest
import torch
from slow_stack import gated_delta
from torch.nn import functional as F
from transformers import DynamicCache, EncoderDecoderCache

import reference
from comparison import assert_same, decoder, draw, encoder, exact, gate_of, jittered
from errors import raises_sentence
from qkv import QkvDecoderForCausalLM
from qkv.configuration.axes import FeatureMapName
from qkv.modeling.context import NO_CONTEXT, LayerContext, Memory
from qkv.modeling.kernels import chunks, linear
from qkv.modeling.kernels import gated_delta as gated_delta_kernel
from qkv.modeling.kernels.gated_delta import DeltaInputs, GatedDeltaAttention, gated_delta_rule
from qkv.modeling.kernels.linear import LinearCrossAttention, LinearSelfAttention
from qkv.modeling.kernels.state_cache import StateLayer
from qkv.modeling.masks.masking import TokenMask
from qkv.modeling.position import POSITIONS
from qkv.modeling.position.hooks import PositionState
from sampling import sampled

MAPS = pytest.mark.parametrize("feature_map", get_args(FeatureMapName))
GROUPS = pytest.mark.parametrize("groups", [4, 2, 1], ids=["all heads", "grouped", "one"])
KEEP = {
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
    "of chunks": torch.tensor([[0, 0, 1, 1, 1, 1, 3]]),
}
PLACES = torch.arange(14).view(2, 7)


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch, request):
    monkeypatch.setattr(gated_delta_kernel, "runs_in_parallel", lambda _: "scan" in request.node.name)
    monkeypatch.setattr(chunks, "CHUNK_TOKENS", 2)
    monkeypatch.setattr(chunks, "GROUP_CHUNKS", 2)
    monkeypatch.setattr(linear, "segment_tokens", lambda query: 6)


def call(module, hidden, context=NO_CONTEXT):
    """Mixed values and, of sums, weights; those of a forward that asks for none are the same."""
    if isinstance(module, GatedDeltaAttention):
        return module(hidden, context)[0], None
    mixed, weights = module(hidden, context._replace(weights=context.cache is None))
    if context.cache is None:
        assert torch.equal(mixed, module(hidden, context)[0])
    return mixed, weights


def build(kind: str, **fields: Any):
    make = encoder if kind == "linear, both ways" else decoder
    kernel = kind.split(",")[0]
    module_class = {"linear": LinearSelfAttention, "gated_delta": GatedDeltaAttention}[kernel]
    return jittered(module_class(make(**{"num_attention_heads": 4, "kernel": kernel, **fields}), 0))


def finish(module, mixed, hidden):
    return module.o_proj(reference.gate_values(mixed.transpose(1, 2).flatten(2), hidden, gate_of(module)))


def linear_loop(module, query, memory, *, turn=None, **given):
    """The module's heads in the quadratic formula of the paper, and its last projection; the weights."""
    heads = [module.query(query), module.key(memory), module.value(memory)]
    turns = {} if turn is None else {"rotate_query": turn, "rotate_key": turn}
    order = [reference.causal] if module.config.causal and query is memory else []
    given = {"visible": reference.visibility(*order, **given), **turns}
    mixed, weights = reference.linear_attention(*heads, module.config.feature_map, **given)
    return finish(module, mixed, query), weights


def delta_loop(module, hidden, _, *, turn=lambda heads: heads, **given):
    """The module's projections through the recurrence token by token."""
    heads = [module.query(hidden), module.key(hidden), module.value(hidden)]
    return finish(module, gated_delta(module, hidden, heads, (turn, turn), **given), hidden), None


LOOPS = {"linear, both ways": linear_loop, "linear": linear_loop, "gated_delta": delta_loop}
LOOPS |= {"gated_delta, by scan": delta_loop}
KINDS = pytest.mark.parametrize("kind", LOOPS)
CAUSAL = pytest.mark.parametrize("kind", ["linear", "gated_delta", "gated_delta, by scan"])


def assert_loop(kind, module, context=NO_CONTEXT, *, length=7, **given):
    hidden = draw(2, length, 6)
    mixed, weights = call(module, hidden, context)
    expected, expected_weights = LOOPS[kind](module, hidden, hidden, **given)
    assert_same(mixed, expected, hidden, *module.parameters())
    if weights is not None:
        assert_same(weights, expected_weights, hidden)


@pytest.mark.costly(9)
@KINDS
@GROUPS
@pytest.mark.parametrize("length", [1, 6, 9])
def test_self_attention(kind, groups, length):
    assert_loop(kind, build(kind, num_key_value_heads=groups, attention_gate=groups == 2), length=length)


@MAPS
def test_feature_maps(feature_map):
    vectors = draw(5, 7)
    expected = torch.stack([reference.FEATURE_MAPS[feature_map](vector) for vector in vectors])
    assert_same(linear.FEATURE_MAPS[feature_map](vectors), expected, vectors)
    for kind in ("linear", "linear, both ways"):
        assert_loop(kind, build(kind, feature_map=feature_map))


@KINDS
@pytest.mark.parametrize("partial", [1.0, 0.5])
def test_rotated_queries_and_keys(kind, partial):
    """A rotation turns the features of sums, and not the divisor."""
    parameters = {"rope_type": "default", "rope_theta": 10.0, "partial_rotary_factor": partial}
    module = build(kind, position="rope", rope_parameters=parameters, num_key_value_heads=2)
    with exact():
        rotation = POSITIONS["rope"](module.config).rotation(PLACES, torch.float64)
    frequencies = reference.rope_frequencies(int(4 * partial), 10.0)
    given = {"turn": lambda heads: reference.rotate_heads(heads, PLACES, frequencies)}
    assert_loop(kind, module, LayerContext(position=PositionState(rotation)), **given)


MASKS = [*((side, None) for side in KEEP), *itertools.product([None, "inside"], DOCUMENTS)]


@pytest.mark.costly(12)
@KINDS
@pytest.mark.parametrize(("side", "name"), MASKS)
def test_padding_is_not_read_and_documents_are_separate(kind, side, name):
    given = {} if side is None else {"keep": KEEP[side]}
    given |= {} if name is None else {"documents": DOCUMENTS[name].expand(2, -1)}
    mask = TokenMask(given.get("keep"), DOCUMENTS.get(name))
    assert_loop(kind, build(kind, num_key_value_heads=2), LayerContext(mask), **given)


def test_no_bit_of_the_delta_rule_depends_on_another_document(monkeypatch):
    """Nor is anything lost where the first document forgets all at once."""
    monkeypatch.setattr(chunks, "CHUNK_TOKENS", 64)
    documents, mixed = torch.tensor([[0, 0, 0, 1, 1, 1, 1]]), []
    query, key, value = (torch.randn(1, 2, 7, 3) for _ in range(3))
    later = 0.1 * torch.rand(1, 2, 4)
    for shares in (torch.rand(1, 2, 3), 200 * torch.rand(1, 2, 3)):
        decay = -torch.cat((shares, later), dim=-1)
        inputs = DeltaInputs(F.normalize(key, dim=-1), value, decay, torch.full((1, 2, 7), 0.5))
        mixed.append(gated_delta_rule(query.unsqueeze(2), inputs, documents)[0])
    assert torch.equal(mixed[0][..., 3:, :], mixed[1][..., 3:, :]) and mixed[0].isfinite().all()
    assert not torch.equal(mixed[0], mixed[1])


@pytest.mark.parametrize(
    ("groups", "feature_map", "side"), sampled(itertools.product([4, 2, 1], get_args(FeatureMapName), [None, *KEEP]), 2)
)
def test_cross_attention(groups, feature_map, side):
    fields = {"num_key_value_heads": groups, "feature_map": feature_map, "attention_gate": groups == 2}
    config = decoder(num_attention_heads=4, kernel="linear", cross_attention=True, **fields)
    module, hidden, memory = jittered(LinearCrossAttention(config, 0)), draw(2, 4, 6), draw(2, 7, 6)
    mask = None if side is None else TokenMask(KEEP[side], None)
    mixed, weights = call(module, hidden, LayerContext(memory=Memory(memory, mask)))
    keep = torch.ones(2, 7).bool() if side is None else KEEP[side]
    expected, expected_weights = linear_loop(module, hidden, memory, keep=keep)
    assert_same(mixed, expected, hidden, memory, *module.parameters())
    assert_same(weights, expected_weights, hidden, memory)


def test_sums_over_memory_are_cached():
    config = decoder(num_attention_heads=4, kernel="linear", cross_attention=True)
    module, hidden, memory = jittered(LinearCrossAttention(config, 0)), draw(2, 4, 6), draw(2, 7, 6)
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    cache.cross_attention_cache.layers.append(StateLayer())
    context = LayerContext(memory=Memory(memory, TokenMask(KEEP["left"], None)))
    expected, weights = call(module, hidden, context)
    assert_same(module(hidden, context._replace(cache=cache))[0], expected)
    assert cache.is_updated == {0: True} and cache.cross_attention_cache.get_seq_length() == 7
    forgotten = LayerContext(memory=Memory(torch.full_like(memory, torch.nan)), cache=cache)
    assert_same(module(hidden[:, :1], forgotten)[0], expected[:, :1])
    # Weights need the memory itself.
    assert_same(module(hidden, context._replace(cache=cache, weights=True))[1], weights)


def cached(module, hidden, steps, keep=None):
    """Read tokens step by step after those in a cache."""
    cache, outputs, parts = DynamicCache(), [], hidden.split(steps, dim=1)
    cache.layers.append(StateLayer())
    masks = [None] * len(steps) if keep is None else [TokenMask(each, None) for each in keep.split(steps, dim=1)]
    for part, mask in zip(parts, masks, strict=True):
        outputs.append(module(part, LayerContext(mask, cache=cache))[0])
    return torch.cat(outputs, 1), cache


@CAUSAL
@pytest.mark.parametrize("steps", [[7], [1] * 7, [4, 1, 2], [3, 3, 1]], ids=str)
@pytest.mark.parametrize("side", [None, "left", "right"])
def test_a_state_stands_for_all_tokens_before(kind, steps, side):
    module, hidden, keep = build(kind, num_key_value_heads=2), draw(2, 7, 6), None if side is None else KEEP[side]
    expected = module(hidden, LayerContext(None if keep is None else TokenMask(keep, None)))[0]
    actual, cache = cached(module, hidden, steps, keep)
    assert_same(actual, expected, hidden, *module.parameters())
    (layer,) = cache.layers
    assert layer.length == 7 and layer.state[0].shape == (2, 2, 4, 4)


@pytest.mark.parametrize(("rows", "tokens"), [(1, 512), (2, 256), (7, 64), (1000, 64)])
def test_segments_are_whole_chunks_of_a_size_on_a_cpu_and_everything_elsewhere(monkeypatch, rows, tokens):
    monkeypatch.setattr(chunks, "CHUNK_TOKENS", 64)
    query = torch.empty(rows, 8, 1, 640, 64, device="meta")
    assert chunks.segment_tokens(query) == 640
    assert chunks.segment_tokens(torch.empty(()).expand(query.shape)) == tokens


@CAUSAL
def test_sums_are_in_single_precision_at_least(kind, monkeypatch):
    """Values of lower precision, and those of autocast, come from sums that lose no tokens."""
    monkeypatch.setattr(chunks, "CHUNK_TOKENS", 64)
    torch.manual_seed(0)
    config = decoder(kernel=kind.split(",")[0], num_attention_heads=4, num_hidden_layers=1)
    module, hidden = QkvDecoderForCausalLM(config).model.layers[0].self_attn, torch.randn(1, 1000, 6)
    exactly = copy.deepcopy(module).double()(hidden.double())[0]
    assert (module(hidden)[0] - exactly).abs().max() <= 1e-5
    with torch.autocast("cpu", torch.bfloat16):
        assert (module(hidden)[0] - exactly).abs().max() <= 2e-2
    assert (module.bfloat16()(hidden.bfloat16())[0] - exactly).abs().max() <= 2e-2


def test_a_value_written_again_under_its_key_is_replaced():
    """With a rate of 1 and no decay a key holds the last value alone, where a sum would hold both."""
    key = torch.tensor([1.0, 0, 0]).view(1, 1, 1, 3).expand(1, 1, 2, 3).double()
    value = draw(1, 1, 2, 3).detach()
    inputs = DeltaInputs(key, value, torch.zeros(1, 1, 2).double(), torch.ones(1, 1, 2).double())
    mixed, _ = gated_delta_rule(key.unsqueeze(2), inputs)
    assert_same(mixed[0, 0, 0], value[0, 0])


def test_strong_decays_stay_finite(monkeypatch):
    """The logarithm of the decay over a chunk passes the range of exponentials; nothing is divided by it."""
    monkeypatch.setattr(chunks, "CHUNK_TOKENS", 64)
    module, hidden = build("gated_delta").float(), torch.randn(1, 200, 6, requires_grad=True)
    with torch.no_grad():
        module.decay_log.fill_(5.0)
    module(hidden)[0].square().sum().backward()
    assert hidden.grad.isfinite().all() and all(weight.grad.isfinite().all() for weight in module.parameters())


def test_heads_start_with_memories_of_all_lengths():
    torch.manual_seed(0)
    config = decoder(kernel="gated_delta", hidden_size=64, num_attention_heads=8)
    module = QkvDecoderForCausalLM(config).model.layers[0].self_attn
    decays = torch.exp(-module.decay_log.exp() * F.softplus(module.decay_bias))
    assert decays.diff().max() < 0 and 0.99 < decays[0] < 1 and 0.1 < decays[-1] < 0.5


def test_weights_of_forgotten_tokens_are_refused():
    module, hidden = build("linear"), draw(2, 3, 6)
    with raises_sentence("output_attentions=True", "use_cache=False"):
        module(hidden, LayerContext(cache=cached(module, hidden, [3])[1], weights=True))
    with raises_sentence("kernel='gated_delta'", "output_attentions=False"):
        build("gated_delta")(hidden, LayerContext(weights=True))
