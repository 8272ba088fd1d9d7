"""The block of the gated delta rule computes its formulas token by token, wherever padding and documents are."""

import pytest
import torch
from slow_stack import each_vector
from torch import Tensor
from transformers import DynamicCache

import reference
from comparison import assert_same, decoder, draw, exact, jittered
from errors import raises_sentence
from qkv import QkvDecoderForCausalLM
from qkv.modeling.context import LayerContext
from qkv.modeling.kernels.delta_net import GatedDeltaNet, short_convolution
from qkv.modeling.kernels.state_cache import hold_states
from qkv.modeling.masks.masking import TokenMask

SIZES = {"kernel": "gated_delta", "linear_conv_kernel_dim": 3, "linear_num_key_heads": 2, "linear_num_value_heads": 4}
SIZES |= {"linear_key_head_dim": 3, "linear_value_head_dim": 2, "hidden_act": "silu", "attention_dropout": 0.0}
KEEP = {
    "right": torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0]]).bool(),
    "left": torch.tensor([[1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1]]).bool(),
    "inside": torch.tensor([[1, 0, 1, 1, 0, 1, 1], [0, 1, 0, 0, 1, 1, 0]]).bool(),
}
DOCUMENTS = {
    "shared": torch.tensor([[0, 0, 0, 0, 1, 2, 2]]),
    "by row": torch.tensor([[0] + 6 * [1], [0] * 3 + [1] * 4]),
}
MASKS = pytest.mark.parametrize(
    ("keep", "documents"),
    [(None, None), *((kept, None) for kept in KEEP.values()), *((None, each) for each in DOCUMENTS.values())],
)


def net(**fields) -> GatedDeltaNet:
    return jittered(GatedDeltaNet(decoder(**{**SIZES, **fields}), 0))


def convolution_loop(values: Tensor, weight: Tensor, keep: Tensor | None, documents: Tensor | None) -> Tensor:
    """Each token by the last real ones of its document, one by one."""
    rows = []
    for row in range(len(values)):
        tokens = []
        for token in range(values.shape[1]):
            here = [
                place
                for place in range(token + 1)
                if (keep is None or keep[row, place])
                and (documents is None or documents[row, place] == documents[row, token])
            ]
            taps = enumerate(reversed(here[-weight.shape[-1] :]), 1)
            parts = [weight[:, 0, -tap] * values[row, place] for tap, place in taps]
            tokens.append(sum(parts, torch.zeros_like(values[0, 0])))
        rows.append(torch.stack(tokens))
    return torch.stack(rows)


def loop(module: GatedDeltaNet, hidden: Tensor, keep: Tensor | None, documents: Tensor | None) -> Tensor:
    mixed = convolution_loop(module.qkv_proj(hidden), module.conv.weight, keep, documents)
    parts = reference.silu(mixed).split(module.sizes, dim=-1)
    query, key, value = map(reference.split_heads, parts, (2, 2, 4))
    query, key = (each_vector(reference.unit_length, each).repeat_interleave(2, dim=1) for each in (query, key))
    step = torch.log(1 + torch.exp(module.decay_proj(hidden) + module.decay_bias))
    decay = torch.exp(-torch.exp(module.decay_log) * step).transpose(1, 2)
    rate = reference.sigmoid(module.rate_proj(hidden)).transpose(1, 2)
    read = reference.gated_delta_rule(query * 3**-0.5, key, value, decay, rate, keep=keep, documents=documents)
    normed = reference.rms_norm(read, module.out_norm.weight, module.out_norm.eps)
    return module.out_proj(reference.merge_heads(normed) * reference.silu(module.gate_proj(hidden)))


@MASKS
def test_the_block_is_its_formulas(keep, documents) -> None:
    module, hidden = net(), draw(2, 7, 6)
    mask = None if keep is None and documents is None else TokenMask(keep, documents)
    rows = None if documents is None else documents.expand(2, -1)
    with exact():
        mixed = module(hidden, LayerContext(mask=mask))[0]
    expected = loop(module, hidden, keep, rows)
    real = torch.ones(2, 7, dtype=torch.bool) if keep is None else keep
    assert_same(mixed[real], expected[real], hidden, *module.parameters())


@pytest.mark.parametrize("keep", [None, *KEEP.values()])
@pytest.mark.parametrize("lengths", [[1] * 7, [4, 1, 2], [2, 5]])
def test_a_state_stands_for_all_tokens_before(lengths, keep) -> None:
    module, hidden = net(), draw(2, 7, 6)
    cache, masks = DynamicCache(), [None] * len(lengths) if keep is None else keep.split(lengths, dim=1)
    hold_states(decoder(**SIZES), cache)
    with exact(), torch.no_grad():
        whole = module(hidden, LayerContext(mask=None if keep is None else TokenMask(keep, None)))[0]
        contexts = [LayerContext(mask=None if one is None else TokenMask(one, None), cache=cache) for one in masks]
        parts = [module(part, each)[0] for part, each in zip(hidden.split(lengths, dim=1), contexts, strict=True)]
    real = torch.ones(2, 7, dtype=torch.bool) if keep is None else keep
    assert_same(torch.cat(parts, dim=1)[real], whole[real])


def test_the_last_document_goes_on() -> None:
    values, weight = draw(1, 7, 4), draw(4, 1, 3)
    whole, _ = short_convolution(values[:, 4:], weight, None)
    mask = TokenMask(None, torch.tensor([[0, 0, 0, 0, 1]]))
    _, end = short_convolution(values[:, :5], weight, mask)
    assert_same(short_convolution(values[:, 5:], weight, None, end)[0], whole[:, 1:])


@pytest.mark.parametrize("fields", [{"position": "learned"}, {**SIZES, "position": ["none", "rope"]}])
def test_layers_with_states_and_layers_with_keys_generate_together(fields) -> None:
    mixed = {"kernel": ["gated_delta", "softmax"], "pattern": ["full", "sliding"], "sliding_window": 3}
    model = QkvDecoderForCausalLM(decoder(**{**fields, **mixed, "num_hidden_layers": 2})).eval()
    ids = torch.tensor([[5, 6, 7, 8, 9], [1, 1, 1, 4, 6]])
    options = {"attention_mask": (ids != 1).long(), "pad_token_id": 1, "do_sample": False, "min_new_tokens": 6}
    plain = model.generate(ids, use_cache=False, max_new_tokens=6, **options)
    for cache in ("dynamic", "static"):
        assert torch.equal(model.generate(ids, cache_implementation=cache, max_new_tokens=6, **options), plain)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"kernel": "softmax"}, ("linear_conv_kernel_dim=3", "kernel='softmax'", "leave it out")),
        ({"position": "rope"}, ("linear_conv_kernel_dim=3", "position='rope'", "'none'")),
        ({"linear_num_value_heads": 3}, ("linear_num_value_heads=3", "linear_num_key_heads=2")),
        ({"linear_conv_kernel_dim": 0}, ("linear_num_key_heads=2", "linear_conv_kernel_dim")),
        ({"kernel": ["gated_delta"] * 3}, ("kernel", "num_hidden_layers")),
        ({"kernel": ["softmax", "gated_delta"], "attention_sinks": True}, ("attention_sinks=True", "kernel=")),
    ],
)
def test_what_cannot_act_is_refused(fields, sentence) -> None:
    with raises_sentence(*sentence):
        decoder(**{**SIZES, "position": "none", "num_hidden_layers": 2, **fields})
