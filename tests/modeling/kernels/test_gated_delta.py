"""The gated delta rule in chunks is the recurrence token by token: values and gradients, packed, padded and cached."""

import copy

import pytest
import torch
from torch.nn import functional as F
from transformers import DynamicCache

import reference
from comparison import assert_same, decoder, draw, exact, gate_of, jittered
from errors import raises_sentence
from qkv import QkvDecoderForCausalLM
from qkv.modeling.context import LayerContext, Memory
from qkv.modeling.kernels import chunks
from qkv.modeling.kernels.gated_delta import DeltaInputs, GatedDeltaAttention, gated_delta_rule
from qkv.modeling.kernels.state_cache import StateLayer
from qkv.modeling.masks.masking import TokenMask
from qkv.modeling.position import POSITIONS
from qkv.modeling.position.hooks import PositionState

GROUPS = pytest.mark.parametrize("groups", [4, 2, 1], ids=["all heads", "grouped", "one"])
KEEP = {
    "right": torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0]]).bool(),
    "left": torch.tensor([[1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1]]).bool(),
    "inside": torch.tensor([[1, 0, 1, 1, 0, 1, 1], [0, 1, 0, 0, 1, 1, 0]]).bool(),
}
DOCUMENTS = {
    "one": torch.zeros(1, 7, dtype=torch.long),
    "of all lengths": torch.tensor([[0, 0, 0, 0, 1, 2, 2]]),
    "by row": torch.tensor([[0, 1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 2]]),
    "of a token": torch.arange(7)[None],
    "of chunks": torch.tensor([[0, 0, 0, 1, 1, 1, 3]]),
}


def call(module, hidden, *given, output_attentions=False, past_key_values=None):
    """Run a kernel as a layer does."""
    options = {"weights": output_attentions, "cache": past_key_values}
    if hasattr(module, "cached_key_value"):
        return module(hidden, LayerContext(memory=Memory(*given), **options))
    return module(hidden, LayerContext(*given, **options))


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_TOKENS", 3)


def attention(**fields):
    return jittered(GatedDeltaAttention(decoder(num_attention_heads=4, kernel="gated_delta", **fields), 0))


def each(function, heads):
    return torch.stack([function(vector) for vector in heads.flatten(0, -2)]).view(heads.shape)


def loop(module, hidden, turn=lambda heads: heads, **given):
    """The module's projections through the recurrence, with what makes its shares written out."""
    query, key, value = (F.silu(heads(hidden)) for heads in (module.query, module.key, module.value))
    query, key = (turn(each(reference.unit_length, heads)) for heads in (query, key))
    step = torch.log(1 + torch.exp(module.decay_proj(hidden) + module.decay_bias))
    decay = torch.exp(-torch.exp(module.decay_log) * step).transpose(1, 2)
    rate = torch.sigmoid(module.rate_proj(hidden)).transpose(1, 2)
    mixed = reference.gated_delta_rule(query, key, value, decay, rate, **given)
    norm = module.out_norm
    mixed = each(lambda vector: reference.rms_norm(vector, norm.weight, norm.eps), mixed)
    return module.o_proj(reference.gate_values(mixed.transpose(1, 2).flatten(2), hidden, gate_of(module)))


@GROUPS
@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_gated_delta_attention(groups, length):
    module = attention(num_key_value_heads=groups, attention_gate=groups == 2)
    hidden = draw(2, length, 6)
    assert_same(call(module, hidden)[0], loop(module, hidden), hidden, *module.parameters())


def test_rotated_queries_and_keys():
    module, hidden, places = attention(position="rope"), draw(2, 7, 6), torch.arange(14).view(2, 7)
    with exact():
        rotation = POSITIONS["rope"](module.config).rotation(places, torch.float64)
    frequencies, _ = reference.rope_frequencies(4, 10000.0)
    expected = loop(module, hidden, lambda heads: reference.rotate_heads(heads, places, frequencies))
    assert_same(
        module(hidden, LayerContext(position=PositionState(rotation)))[0], expected, hidden, *module.parameters()
    )


@pytest.mark.parametrize("side", KEEP)
def test_padding_leaves_the_state(side):
    module, hidden = attention(num_key_value_heads=2), draw(2, 7, 6)
    actual = call(module, hidden, TokenMask(KEEP[side], None))[0]
    assert_same(actual, loop(module, hidden, keep=KEEP[side]), hidden, *module.parameters())


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("side", [None, "inside"])
def test_documents_start_from_nothing(name, side):
    module, hidden = attention(num_key_value_heads=2), draw(2, 7, 6)
    keep = None if side is None else KEEP[side]
    actual = call(module, hidden, TokenMask(keep, DOCUMENTS[name]))[0]
    expected = loop(module, hidden, keep=keep, documents=DOCUMENTS[name].expand(2, -1))
    assert_same(actual, expected, hidden, *module.parameters())


@pytest.mark.parametrize("steps", [[7], [1] * 7, [4, 1, 2], [2, 5], [3, 3, 1]], ids=str)
@pytest.mark.parametrize("side", [None, "left", "right"])
def test_a_state_stands_for_all_tokens_before(steps, side):
    module, hidden = attention(num_key_value_heads=2), draw(2, 7, 6)
    cache, outputs, first = DynamicCache(), [], 0
    cache.layers.append(StateLayer())
    mask = None if side is None else TokenMask(KEEP[side], None)
    for step in steps:
        own = slice(first, first + step)
        part = None if side is None else TokenMask(KEEP[side][:, own], None)
        outputs.append(call(module, hidden[:, own], part, past_key_values=cache)[0])
        first += step
    assert_same(torch.cat(outputs, 1), call(module, hidden, mask)[0], hidden, *module.parameters())
    assert [part.shape for part in cache.layers[0].state] == [(2, 2, 4, 4)]


@pytest.mark.parametrize("back", [1, 4, 6])
def test_tokens_are_taken_back(back):
    module, hidden = attention(), draw(2, 7, 6)
    cache = DynamicCache()
    cache.layers.append(StateLayer())
    call(module, hidden[:, :1], past_key_values=cache)
    cache.activate_past_recording()
    for own in (slice(1, 4), slice(4, 5), slice(5, 7)):
        call(module, hidden[:, own], past_key_values=cache)
    cache.crop(-back)
    again = call(module, hidden[:, 7 - back :], past_key_values=cache)[0]
    assert_same(again, call(module, hidden)[0][:, 7 - back :], tolerance=1e-11)


def test_what_is_written_twice_under_a_key_is_replaced():
    """With a rate of 1 and no decay a key holds the last value alone, where a sum would hold both."""
    key = torch.tensor([1.0, 0, 0]).view(1, 1, 1, 3).expand(1, 1, 2, 3).double()
    value = draw(1, 1, 2, 3).detach()
    inputs = DeltaInputs(key, value, torch.zeros(1, 1, 2).double(), torch.ones(1, 1, 2).double())
    mixed, _ = gated_delta_rule(key.unsqueeze(2), inputs)
    assert_same(mixed[0, 0, 0], value[0, 0])


def test_strong_decays_stay_finite(monkeypatch):
    """The logarithm of what is left over a chunk passes the range of exponentials; nothing is divided by it."""
    monkeypatch.setattr(chunks, "CHUNK_TOKENS", 64)
    module, hidden = attention().float(), torch.randn(1, 200, 6, requires_grad=True)
    with torch.no_grad():
        module.decay_log.fill_(5.0)
    call(module, hidden)[0].square().sum().backward()
    assert hidden.grad.isfinite().all() and all(each.grad.isfinite().all() for each in module.parameters())


def test_sums_are_in_single_precision_at_least(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_TOKENS", 64)
    torch.manual_seed(0)
    model = QkvDecoderForCausalLM(decoder(kernel="gated_delta", num_attention_heads=4, num_hidden_layers=1))
    module, hidden = model.model.layers[0].self_attn, torch.randn(1, 1000, 6)
    exactly = copy.deepcopy(module).double()(hidden.double())[0]
    assert (call(module, hidden)[0] - exactly).abs().max() <= 1e-5
    with torch.autocast("cpu", torch.bfloat16):
        assert (call(module, hidden)[0] - exactly).abs().max() <= 2e-2
    assert (module.bfloat16()(hidden.bfloat16())[0] - exactly).abs().max() <= 2e-2


def test_heads_start_with_memories_of_all_lengths():
    torch.manual_seed(0)
    config = decoder(kernel="gated_delta", hidden_size=64, num_attention_heads=8)
    module = QkvDecoderForCausalLM(config).model.layers[0].self_attn
    decays = torch.exp(-module.decay_log.exp() * F.softplus(module.decay_bias))
    assert decays.diff().max() < 0 and 0.99 < decays[0] < 1 and 0.1 < decays[-1] < 0.5


def test_weights_are_refused():
    module = attention()
    with raises_sentence("kernel='gated_delta'", "output_attentions=False"):
        call(module, draw(1, 3, 6), output_attentions=True)
