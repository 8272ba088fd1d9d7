"""All backends mix the visible pairs as softmax attention says, or refuse what they would ignore."""

import itertools
from types import SimpleNamespace
from typing import get_args

import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import and_masks, causal_mask_function, flex_attention_mask, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import reference
from comparison import EXACT, assert_same, decoder, differentiable_flex, draw, jittered
from qkv import QkvDecoderModel
from qkv.configuration.axes import BIAS_POSITIONS, PatternName, PositionName
from qkv.modeling.kernel import attention_backend, check_backend, check_takes_bias, eager_attention, score_bias

BATCH, HEADS, LENGTH, WIDTH = 2, 6, 5, 3
BACKENDS = ["eager", "sdpa", "flex_attention"]
GROUPS = pytest.mark.parametrize("groups", [6, 3, 2, 1])


def module(implementation="eager", **fields):
    """What backends read of an attention module."""
    config = SimpleNamespace(_attn_implementation=implementation)
    return SimpleNamespace(config=config, training=False, is_causal=False, num_key_value_groups=1, **fields)


def inputs(groups, keys=LENGTH):
    return draw(BATCH, HEADS, LENGTH, WIDTH), draw(BATCH, groups, keys, WIDTH), draw(BATCH, groups, keys, WIDTH)


def softmax_attention(attention, query, key, value, attention_mask, position_bias=None, **kwargs):
    """Attend as the modules do."""
    backend = kwargs.pop("attention_implementation", None) or attention.config._attn_implementation
    attend = ALL_ATTENTION_FUNCTIONS.get_interface(backend, eager_attention)
    kwargs["position_bias"] = score_bias(position_bias, query, backend)
    return attend(attention, query, key, value, attention_mask, **kwargs)


@pytest.fixture
def flex():
    with differentiable_flex():
        yield


def visible(b, t, s):
    """Causal, and the second row is padded in front; its first queries see nothing but themselves."""
    return s <= t and (b == 0 or s >= 2 or s == t)


def mask():
    rows = [[[visible(b, t, s) for s in range(LENGTH)] for t in range(LENGTH)] for b in range(BATCH)]
    return torch.tensor(rows)[:, None]


def mask_for(backend):
    if backend == "eager":
        return torch.zeros(mask().shape, dtype=torch.float64).masked_fill(~mask(), torch.finfo(torch.float64).min)
    if backend == "sdpa":
        return mask()
    padded = and_masks(causal_mask_function, lambda b, h, q, k: (b == 0) | (k >= 2) | (k == q))
    return flex_attention_mask(
        batch_size=BATCH, q_length=LENGTH, kv_length=LENGTH, mask_function=padded, attention_mask=None, device="cpu"
    )


@GROUPS
@pytest.mark.parametrize("keys", [LENGTH, 7])
@pytest.mark.parametrize("scale", [WIDTH**-0.5, 1.0, 0.3])
def test_eager_attention(groups, keys, scale):
    query, key, value = inputs(groups, keys)
    mixed, weights = eager_attention(module(), query, key, value, None, scale)
    expected, expected_weights = reference.attention(query, key, value, scale)
    assert_same(mixed.transpose(1, 2), expected, query, key, value)
    assert_same(weights, expected_weights, query, key)
    assert (weights.sum(-1) - 1).abs().max() <= EXACT


@GROUPS
@pytest.mark.parametrize("heads", [1, HEADS], ids=["shared", "each head"])
@pytest.mark.parametrize("rows", [1, BATCH], ids=["one row", "each row"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.costly(24)
def test_backend(flex, backend, groups, heads, rows):
    """Every backend, with a mask and a bias, against the loops: values and all gradients, the bias's too."""
    query, key, value = inputs(groups)
    bias = draw(rows, HEADS if heads > 1 else 1, LENGTH, LENGTH)
    wide = bias.expand(-1, HEADS, -1, -1)
    attention = module(backend)
    attention.num_key_value_groups = HEADS // groups
    mixed, _ = softmax_attention(attention, query, key, value, mask_for(backend), position_bias=wide, scaling=0.7)
    expected, _ = reference.attention(query, key, value, 0.7, visible, bias)
    assert_same(mixed.transpose(1, 2), expected, query, key, value, bias)


@pytest.mark.parametrize("backend", ["eager", "flex_attention"])
@pytest.mark.parametrize("cap", [0.3, 5.0])
def test_scores_approach_a_bound(flex, backend, cap):
    """By the backends that can: before the mask and the bias."""
    query, key, value = inputs(2)
    bias = draw(BATCH, HEADS, LENGTH, LENGTH)
    attention = module(backend)
    attention.num_key_value_groups = HEADS // 2
    given = {"position_bias": bias, "scaling": 0.7, "softcap": cap}
    mixed, _ = softmax_attention(attention, query, key, value, mask_for(backend), **given)
    expected, _ = reference.attention(query, key, value, 0.7, visible, bias, cap)
    assert_same(mixed.transpose(1, 2), expected, query, key, value, bias)


@torch.no_grad()
def test_sdpa_leaves_bounded_scores_to_eager_attention():
    config = decoder(attn_logit_softcapping=0.3, pattern="sliding", sliding_window=3)
    model, ids = jittered(QkvDecoderModel(config)).eval(), torch.arange(8).view(2, 4)
    assert attention_backend(model.config, {}) == "eager" and model.config._attn_implementation == "sdpa"
    unpadded = model(ids, attention_mask=torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])).last_hidden_state
    model.set_attn_implementation("eager")
    found = model(ids, attention_mask=torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])).last_hidden_state
    assert torch.equal(found[0], unpadded[0]) and torch.equal(found[1, :2], unpadded[1, :2])


@pytest.mark.parametrize("groups", [6, 2])
def test_flex_as_torch_runs_it(groups):
    """The stand-in that gives the other tests their gradients is flex attention: here it is called itself."""
    query, key, value = (tensor.detach() for tensor in inputs(groups))
    bias = draw(1, HEADS, LENGTH, LENGTH).detach()
    given = {"position_bias": bias, "scaling": 0.7}
    torch.compiler.set_stance("force_eager")
    mixed, _ = softmax_attention(module("flex_attention"), query, key, value, mask_for("flex_attention"), **given)
    torch.compiler.set_stance("default")
    assert_same(mixed.transpose(1, 2), reference.attention(query, key, value, 0.7, visible, bias)[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_backend_without_a_mask_sees_everything(flex, backend):
    query, key, value = inputs(HEADS)
    mixed, _ = softmax_attention(module(backend), query, key, value, None, scaling=0.7)
    assert_same(mixed.transpose(1, 2), reference.attention(query, key, value, 0.7)[0], query, key, value)


def test_boolean_and_additive_masks_are_one_and_a_row_that_sees_nothing_stays_finite():
    query, key, value = inputs(3)
    one, other = (eager_attention(module(), query, key, value, kind, 0.7)[0] for kind in (mask(), mask_for("eager")))
    assert torch.equal(one, other)
    blind = eager_attention(module(), query, key, value, torch.zeros(BATCH, 1, LENGTH, LENGTH).bool(), 0.7)
    assert all(each.isfinite().all() for each in blind)


def test_softmax_of_half_precision_is_taken_in_single():
    query, key, value = ((3 * tensor).detach().bfloat16() for tensor in inputs(HEADS, keys=999))
    _, weights = eager_attention(module(), query, key, value, None, 1.0)
    scores = (query @ key.transpose(-1, -2)).float()
    assert weights.dtype == torch.bfloat16 and torch.equal(weights, scores.softmax(-1).bfloat16())


def test_dropout_acts_on_weights_in_training_only():
    query, key, value = draw(1, 1, 400, 3), draw(1, 1, 50, 3), draw(1, 1, 50, 3)
    attention = module()
    _, whole = eager_attention(attention, query, key, value, None, 0.7, dropout=0.25)
    attention.training = True
    mixed, dropped = eager_attention(attention, query, key, value, None, 0.7, dropout=0.25)
    gone = dropped == 0
    assert abs(gone.double().mean().item() - 0.25) <= 5 * (0.25 * 0.75 / gone.numel()) ** 0.5
    assert ((dropped - whole / 0.75).abs() <= EXACT)[~gone].all()
    assert (mixed.transpose(1, 2) - dropped @ value).abs().max() <= EXACT


# Every backend of transformers, and names of kernels from elsewhere.
THEIRS = [name for name, attend in ALL_ATTENTION_FUNCTIONS.items() if attend.__module__.startswith("transformers.")]
IMPLEMENTATIONS = sorted({*THEIRS, "eager", "kernels-community/flash-attn3"})


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_backends_refuse_what_they_would_ignore(implementation):
    """Every position and pattern under every backend: it is computed, or refused with one sentence."""
    ignores = "flash" in implementation or "paged" in implementation
    for position, pattern in itertools.product(get_args(PositionName), get_args(PatternName)):
        config = decoder(position=position, pattern=pattern, sliding_window=3)
        lost = [f"position={position!r}"] if position in BIAS_POSITIONS else []
        lost += [f"pattern={pattern!r}"] if pattern not in ("full", "sliding") else []
        if ignores and lost:
            with pytest.raises(ValueError, match=lost[0]):
                check_backend(config, implementation)
        else:
            check_backend(config, implementation)


@pytest.fixture
def engine():
    """A backend of somebody else, that knows no score bias and, unless it registers one, no mask."""
    name = "engine"
    ALL_ATTENTION_FUNCTIONS.register(name, lambda module, query, key, value, mask, **kwargs: None)
    yield name
    del AttentionInterface._global_mapping[name]
    AttentionMaskInterface._global_mapping.pop(name, None)


def test_what_a_registered_backend_is_not_known_to_take_is_refused(engine):
    # A pattern of one layer is not overlooked.
    biased, blocks = decoder(position="alibi"), decoder(position="rope", pattern=["full", "full", "block_sparse"])
    check_backend(decoder(position="rope"), engine)
    with pytest.raises(ValueError, match="attn_implementation='engine'.*attn_logit_softcapping"):
        check_backend(decoder(attn_logit_softcapping=1.0), engine)
    check_backend(decoder(attn_logit_softcapping=1.0), "flash_attention_2")
    for fields in ({"lm_head_transform": True}, {"final_logit_softcapping": 2.0}):
        with pytest.raises(ValueError, match=f"attn_implementation='engine'.*{min(fields)}"):
            check_backend(decoder(**fields), engine)
        check_backend(decoder(**fields), "flash_attention_2")
    with pytest.raises(ValueError, match="continuous batching.*attn_logit_softcapping"):
        check_backend(decoder(attn_logit_softcapping=1.0), "sdpa", paged=True)
    for config, lost in ((biased, "position='alibi'"), (blocks, "pattern='block_sparse'")):
        with pytest.raises(ValueError, match=f"attn_implementation='engine'.*{lost}"):
            check_backend(config, engine)
    AttentionMaskInterface.register(engine, sdpa_mask)
    check_backend(blocks, engine)
    with pytest.raises(ValueError, match="attn_implementation='engine'"):
        check_takes_bias(engine)
    AttentionInterface.register(engine, sdpa_attention_forward)
    check_backend(biased, engine)
    check_takes_bias(engine)
