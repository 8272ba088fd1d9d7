"""Fast paths that no GPU was measured with: one product for queries, keys and values, and an order of attention kernels."""

from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import _cur_sdpa_kernel_backends
from torch.testing import assert_close
from torch.testing._internal.two_tensor import TwoTensor

import tiny
from comparison import assert_alike, decoder, exact, jittered, learned
from qkv.modeling.attention import SelfAttention
from qkv.modeling.fast_paths import cudnn_first, one_product, varlen
from qkv.modeling.modeling_decoder import QkvDecoderModel
from qkv.modeling.stack import Stack
from varlen_stand_in import varlen_attn

SIZES = {"num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8, "sliding_window": 3}
IDS = torch.randint(11, (3, 12), generator=torch.Generator().manual_seed(0))
RIGHT = (torch.arange(12) < torch.tensor([[9], [1], [12]])).long()


@pytest.fixture
def joint() -> Iterator[mock.Mock]:
    """Is called where heads come from one product."""
    with mock.patch.object(one_product, "placed_heads", mock.Mock(wraps=one_product.placed_heads)) as placed:
        yield placed


@pytest.fixture
def first() -> Iterator[list[bool]]:
    """Whether cuDNN came first, at each call of attention."""
    seen: list[bool] = []
    attend = F.scaled_dot_product_attention

    def watched(*args: Any, **options: Any) -> Tensor:
        seen.append(_cur_sdpa_kernel_backends(with_priority=True)[:4] == cudnn_first.ORDER)
        return attend(*args, **options)

    with mock.patch.object(F, "scaled_dot_product_attention", watched):
        yield seen


def asked(model: Any, wanted: bool | None = True) -> Any:
    for stack in (each for each in model.modules() if isinstance(each, Stack)):
        stack.one_product = stack.cudnn_first = wanted
    return model


def built(**fields: Any) -> Any:
    return jittered(QkvDecoderModel(decoder(**{**SIZES, **fields})))


def assert_equal(model: Any, real: Tensor | None = None) -> None:
    with exact():
        found = [learned(asked(model, each), real, input_ids=IDS, attention_mask=real) for each in (True, False)]
    assert_alike(*found)


FIELDS: list[dict[str, Any]] = [
    {"position": "rope"},
    {"position": "xpos"},  # which rotates keys otherwise
    {"query_key_norm": True, "position": "rope", "norm": "rms"},
    {"query_key_norm": "width", "position": ["none", "rope"]},
    {"attention_gate": True, "pattern": "sliding"},
]


@pytest.mark.parametrize("mask", [None, RIGHT])
@pytest.mark.parametrize("biased", [True, ["q_proj", "v_proj"], False])
@pytest.mark.parametrize(("fields", "groups"), zip(FIELDS, (4, 2, 1, 2, 2), strict=True))
def test_values_and_gradients_are_those_of_three_products(
    joint: mock.Mock, fields: dict[str, Any], groups: int, biased: Any, mask: Tensor | None
) -> None:
    assert_equal(built(**fields, num_key_value_heads=groups, attention_bias=biased), mask)
    assert joint.call_count == SIZES["num_hidden_layers"]


@pytest.mark.parametrize("case", tiny.LOSSES, ids=lambda case: case.name)
def test_every_head_of_every_family(joint: mock.Mock, case: tiny.Case) -> None:
    model, inputs, found = case.build(), case.inputs(), []
    for wanted in (True, False):
        model.zero_grad()
        loss = asked(model, wanted)(**inputs).loss
        loss.backward()
        found.append([loss.detach(), *(each.grad for each in model.parameters() if each.grad is not None)])
    assert_close(*found, rtol=1e-5, atol=1e-5)
    kinds = {type(each.layers[0].self_attn) for each in model.modules() if isinstance(each, Stack)}
    added = case.name.endswith("-detr")  # to the input of queries and keys, but not of values
    assert joint.called == (SelfAttention in kinds and not added)


LORA = LoraConfig(target_modules=["q_proj", "v_proj"], r=2, init_lora_weights=False)
CHANGES: dict[str, Callable[[Any], object]] = {
    "adapter on two": lambda maps: inject_adapter_in_model(LORA, maps).double(),
    "quantized": lambda maps: setattr(maps.k_proj, "__class__", type("Quantized", (nn.Linear,), {})),
    "sharded": lambda maps: setattr(maps.v_proj, "weight", nn.Parameter(TwoTensor(*[maps.v_proj.weight.data] * 2))),
    "other forward": lambda maps: setattr(maps.q_proj, "forward", nn.Linear(6, 32).double().forward),
    "hook": lambda maps: maps.q_proj.register_forward_hook(lambda *given: 2 * given[-1]),
    "hook of gradients": lambda maps: maps.k_proj.register_full_backward_hook(lambda _, into, out: (2 * into[0],)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_maps_that_something_changes_stay_apart(joint: mock.Mock, change: str) -> None:
    model = built(num_hidden_layers=1)
    CHANGES[change](model.layers[0].self_attn)
    assert_equal(model)
    assert not joint.called


def test_layers_that_are_recomputed(joint: mock.Mock, first: list[bool]) -> None:
    model = built(position="rope").train()
    model.activation_checkpointing_enable({"use_reentrant": False})
    assert_equal(model)
    assert joint.call_count == 2 * SIZES["num_hidden_layers"] and first == [True] * 4 + [False] * 4


def test_a_graph_without_a_break() -> None:
    model, widths = built(position="rope", num_key_value_heads=2, num_hidden_layers=1).train(), []

    def watched(graph: Any, _: Any) -> Any:
        linears = (node for node in graph.graph.nodes if node.target is F.linear)
        widths.extend(node.meta["example_value"].shape[-1] for node in linears)
        return graph.forward

    found = learned(torch.compile(asked(model), backend=watched, fullgraph=True), input_ids=IDS, use_cache=False)
    assert_close(found, learned(asked(model, False), input_ids=IDS, use_cache=False), rtol=1e-5, atol=1e-5)
    assert 32 + 2 * 16 in widths and 16 not in widths


STAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "cache": ({}, {"use_cache": True}),
    "padding": ({}, {"attention_mask": RIGHT}),
    "documents": ({}, {"position_ids": torch.tensor([[*range(4), *range(8)]])}),
    "windows": ({"pattern": "sliding"}, {}),
    "score bias": ({"position": "alibi"}, {}),
    "linear": ({"kernel": "linear"}, {}),
}


@pytest.mark.parametrize("case", STAYS)
def test_other_texts_keep_the_order_of_kernels(first: list[bool], case: str) -> None:
    fields, inputs = STAYS[case]
    asked(built(**fields))(**{"input_ids": IDS, "use_cache": False, **inputs})
    assert not any(first)


def test_marks_that_hide_nothing_leave_the_order(first: list[bool]) -> None:
    kernel = varlen.VarlenKernel(varlen_attn, (torch.float32,), work=0)
    with mock.patch.dict(varlen.VARLEN_KERNELS, cpu=kernel):
        asked(built().float())(input_ids=IDS, attention_mask=torch.ones_like(IDS), use_cache=False)
    assert first == [True, True]


def test_what_was_not_measured_is_closed(joint: mock.Mock, first: list[bool]) -> None:
    assert not one_product.LEAST_TOKENS and not cudnn_first.FASTER
    for least, dtype, open_ in ((37, torch.bfloat16, False), (36, torch.float32, True)):
        with mock.patch.dict(one_product.LEAST_TOKENS, cpu=least), mock.patch.dict(cudnn_first.FASTER, cpu=(dtype,)):
            asked(built().float(), None)(input_ids=IDS, use_cache=False)
        assert joint.called == open_ and first.pop() == open_
