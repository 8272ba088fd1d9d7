"""Sinks are a logit more in the denominator: in every backend that takes them, with gradients, and in no other."""

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask
from transformers import DynamicCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import reference
from comparison import EXACT, assert_same, decoder, draw, exact, jittered
from flex_stand_in import flex_attention
from qkv import QkvDecoderForCausalLM
from qkv.modeling import execution
from qkv.modeling.fast_paths import flex_blocks, varlen
from qkv.modeling.fast_paths.cudnn_first import CudnnPlan
from qkv.modeling.fast_paths.flex_blocks import FlexKernel, FlexPlan
from qkv.modeling.fast_paths.stack_step import StackStep
from qkv.modeling.fast_paths.varlen import VarlenKernel, VarlenPlan
from qkv.modeling.kernel import check_backend, eager_attention, with_sinks
from varlen_stand_in import varlen_attn

HEADS, LENGTH = 6, 5
PAIRS = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
MASKS = {
    "none": (None, lambda b, t, s: s <= t),
    "boolean": ((PAIRS.triu(-2))[None, None], lambda b, t, s: t - 3 < s <= t),
    "added": (torch.zeros(1, 1, LENGTH, LENGTH).double().masked_fill(~PAIRS, -1e300), lambda b, t, s: s <= t),
}


@pytest.mark.parametrize("groups", [6, 2])
@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_backend(backend: str, name: str, biased: bool, groups: int) -> None:
    mask, visible = MASKS[name]
    query, key, value = draw(2, HEADS, LENGTH, 3), draw(2, groups, LENGTH, 3), draw(2, groups, LENGTH, 3)
    sinks, bias = draw(HEADS), draw(1, HEADS, LENGTH, LENGTH)
    module: Any = SimpleNamespace(training=False, is_causal=True, num_key_value_groups=HEADS // groups)
    attend = with_sinks(ALL_ATTENTION_FUNCTIONS.get_interface(backend, eager_attention), sinks)
    given = mask if mask is not None or backend == "sdpa" else PAIRS[None, None]
    mixed, weights = attend(
        module, query, key, value, given, scaling=0.7, dropout=0.0, position_bias=bias if biased else None
    )
    expected, shares = reference.attention(query, key, value, 0.7, visible, bias if biased else None, sinks=sinks)
    assert_same(mixed.transpose(1, 2), expected, query, key, value, sinks, *([bias] if biased else []))
    if weights is not None:
        assert (weights - shares).abs().max() <= EXACT and (weights.sum(-1) < 1).all()


def model_of(**fields: Any) -> QkvDecoderForCausalLM:
    torch.manual_seed(0)
    words = {"position": "rope", "pattern": ["full", "sliding", "full"], "sliding_window": 3, "attention_sinks": True}
    return jittered(QkvDecoderForCausalLM(decoder(**{**words, **fields}, pad_token_id=0))).eval()


IDS = torch.randint(1, 11, (2, 7), generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[1] * 7, [0] * 3 + [1] * 4])


def states(model: QkvDecoderForCausalLM, **inputs: Any) -> Tensor:
    with exact():
        return model(**inputs).logits[MASK.bool()]


def test_backends_packing_and_caches_are_one() -> None:
    model = model_of()
    eager, sdpa = (model, model_of())
    eager.set_attn_implementation("eager")
    batch = {"input_ids": IDS, "attention_mask": MASK}
    expected = states(eager, **batch)
    assert (states(sdpa, **batch) - expected).abs().max() <= EXACT
    sdpa.remove_padding = True
    assert (states(sdpa, **batch) - expected).abs().max() <= EXACT
    cache = DynamicCache(config=sdpa.config)
    with exact():
        parts = [
            sdpa(
                input_ids=IDS[:, first:last], attention_mask=MASK[:, :last], past_key_values=cache, use_cache=True
            ).logits
            for first, last in ((0, 4), (4, 5), (5, 7))
        ]
    assert (torch.cat(parts, 1)[MASK.bool()] - expected).abs().max() <= EXACT
    gone = model_of(attention_sinks=False)
    gone.load_state_dict(sdpa.state_dict(), strict=False)
    assert (states(gone, **batch) - expected).abs().max() > 1e-3


def test_padding_in_training_and_long_windows_take_no_path_that_ignores_sinks() -> None:
    model = model_of(max_position_embeddings=400, sliding_window=8).train()
    other = model_of(max_position_embeddings=400, sliding_window=8).train()
    other.set_attn_implementation("eager")
    ids = torch.randint(1, 11, (2, 300))
    mask = torch.ones_like(ids)
    mask[1, 250:] = 0
    for each in (model, other):
        with exact():
            each(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss.backward()
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert (one.grad - two.grad).abs().max() <= 100 * EXACT


@pytest.mark.parametrize("fields", [{"pattern": "sliding", "sliding_window": 8}, {"pattern": "full"}], ids=str)
def test_kernels_of_a_gpu_are_left_out(fields: dict[str, Any]) -> None:
    kernel = VarlenKernel(varlen_attn, (torch.float64, torch.float32, torch.bfloat16), work=0)
    flex = FlexKernel(flex_attention, create_block_mask, (torch.float64, torch.float32), work=0)
    model = model_of(**fields, max_position_embeddings=400, head_dim=16)
    ids = torch.randint(1, 11, (2, 300))
    with (
        exact(),
        torch.no_grad(),
        mock.patch.dict(varlen.VARLEN_KERNELS, cpu=kernel),
        mock.patch.dict(flex_blocks.FLEX_KERNELS, cpu=flex),
        mock.patch.object(execution, "PLANS", [VarlenPlan, FlexPlan, CudnnPlan]),
    ):
        actual = model(input_ids=ids).logits
        model.set_attn_implementation("eager")
        assert (actual - model(input_ids=ids).logits).abs().max() <= 100 * EXACT


def test_flex_has_no_sum_of_exponentials_on_a_cpu() -> None:
    attend = with_sinks(ALL_ATTENTION_FUNCTIONS["flex_attention"], torch.zeros(2))
    with pytest.raises(ValueError, match="Attention sinks"):
        attend(SimpleNamespace(training=False), *torch.zeros(3, 1, 2, 4, 8), None)


def test_generation_writes_the_same_tokens() -> None:
    model = model_of().float()
    assert not StackStep(model.model, 1).steps  # they know no sinks
    settings = {"max_new_tokens": 6, "do_sample": False, "attention_mask": MASK}
    cached = model.generate(IDS, **settings)
    assert torch.equal(cached, model.generate(IDS, **settings, use_cache=False))


@pytest.mark.parametrize("implementation", ["flash_attention_2", "paged|sdpa", "kernels-community/flash-attn3"])
def test_other_backends_are_refused(implementation: str) -> None:
    with pytest.raises(ValueError, match="attention_sinks=True"):
        check_backend(decoder(attention_sinks=True), implementation)
    with pytest.raises(ValueError, match="attention_sinks=True"):
        decoder(attention_sinks=True, kernel="linear", position="none")
