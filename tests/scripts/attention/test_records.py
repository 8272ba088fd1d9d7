"""Records: what is chosen and joined, gradients by fused kernels, and what needs all layers."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.modeling_layers import GradientCheckpointingLayer

import qkv
import tiny
from errors import raises_sentence
from families.attentions import FAMILIES, built
from qkv.scripts.attention.layers import attention_layers
from tiny import jitter

GRADED = [
    *(name for name in FAMILIES if "linear" not in name and "rnnsearch" not in name and "luong" not in name),
]


def target_of(outputs: Any) -> Tensor:
    """A number to which tokens are relevant differently, of outputs that are no padding."""
    value = outputs[0][:, :2]
    return (value * torch.linspace(-1, 1, value.numel()).roll(3).view_as(value)).sum()


@pytest.mark.parametrize("name", [name for name in GRADED if "clip" not in name and "pairs" not in name])
def test_gradients_are_those_of_eager_weights(name: str) -> None:
    """Of eager attention autograd gives them; fused kernels, padding removed, have no weights to derive by."""
    model, inputs, names = built(name)
    model.requires_grad_(False)  # a model that is not trained is explained as well
    with qkv.capture_attention(model, inputs, also=["gradients"]) as captured:
        derived = captured.gradients(target_of(captured.outputs))
    eager = copy.deepcopy(model).requires_grad_(True)
    if name != "stock gemma2":
        eager.set_attn_implementation("eager")
    outputs = eager(**inputs, output_attentions=True)
    weights = [(stack, each) for stack, key in names.items() for each in outputs[key]]
    expected = torch.autograd.grad(target_of(outputs), [each for _, each in weights])
    own = {id(record): each for record, each in zip(captured, derived, strict=True)}
    ordered = [own[id(record)] for stack in names for record in captured.select(stack)]
    real = [record for stack in names for record in captured.select(stack)]
    for record, found, (_, eager_weights), gradient in zip(real, ordered, weights, expected, strict=True):
        seen = record.weights > 0  # of hidden keys a gradient says nothing
        assert found.shape == eager_weights.shape and seen.any()
        scale = gradient.abs().max()
        assert ((found - gradient) * seen).abs().max() <= 2e-4 * scale
        assert ((found.roll(1, 1) - gradient) * seen).abs().max() > 1e-3 * scale


def checkpointed(model: Any, *, reentrant: bool) -> Any:
    """A copy that computes its layers again for their gradients, without dropout."""
    model = copy.deepcopy(model)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    for module in model.modules():
        module.training = isinstance(module, GradientCheckpointingLayer)
    return model


@pytest.mark.parametrize("is_inside", [True, False])
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("name", ["qkv bert", "qkv linear", "stock bert"])
def test_a_layer_that_is_computed_again_is_recorded_once(name: str, reentrant: bool, is_inside: bool) -> None:
    plain, inputs, _ = built(name)
    with qkv.capture_attention(plain, inputs) as expected:
        target_of(expected.outputs).backward()
    model, calls = checkpointed(plain, reentrant=reentrant), []
    for layer in attention_layers(model):
        layer.module.register_forward_pre_hook(lambda *_: calls.append(True))
    with qkv.capture_attention(model, inputs) as captured:
        if is_inside:
            target_of(captured.outputs).backward()
    if not is_inside:
        target_of(captured.outputs).backward()
    assert len(calls) == 2 * len(expected)
    assert [(record.stack, record.layer, record.step) for record in captured] == [
        (record.stack, record.layer, record.step) for record in expected
    ]
    for record, other in zip(captured, expected, strict=True):
        torch.testing.assert_close(record.weights, other.weights)
    for parameter, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad)


@pytest.mark.parametrize("name", ["qkv bert", "stock bert"])
def test_gradients_of_layers_that_are_computed_again(name: str) -> None:
    plain, inputs, _ = built(name)
    with qkv.capture_attention(plain, inputs, also=["gradients"]) as captured:
        expected = captured.gradients(target_of(captured.outputs))
    model = checkpointed(plain, reentrant=False)
    with qkv.capture_attention(model, inputs, also=["gradients"]) as captured:
        torch.testing.assert_close(captured.gradients(target_of(captured.outputs)), expected)
    with qkv.capture_attention(checkpointed(plain, reentrant=True), inputs, also=["gradients"]) as captured:
        pass
    with raises_sentence("reentrant gradient checkpointing"):
        captured.gradients(target_of(captured.outputs))


def test_relevance_of_an_encoder_decoder() -> None:
    model, inputs, _ = built("qkv transformer")
    with qkv.capture_attention(model, inputs, also=["gradients"]) as captured:
        relevance = captured.relevance(target_of(captured.outputs))
    assert {name: tuple(each.shape) for name, each in relevance.items()} == {
        "encoder": (2, 7, 7), "decoder": (2, 9, 9), "cross": (2, 9, 7)
    }  # fmt: skip
    assert relevance["cross"].min() >= 0 and relevance["cross"][0].max() > 0
    assert relevance["cross"][1, :, 5:].max() == 0  # padding of the source


@torch.no_grad()
def test_rollout_and_flow_of_a_stack() -> None:
    model, inputs, _ = built("qkv bert")
    with qkv.capture_attention(model, inputs) as captured:
        pass
    rolled, flow = captured.rollout(), captured.flow(queries=[0, -3])
    torch.testing.assert_close(rolled.sum(-1), torch.ones(2, 9))
    assert flow.shape == (2, 2, 9) and flow[1, :, 7:].max() <= 1e-6
    with raises_sentence("stack='encoder'", "layers"):
        qkv_part(model, inputs, layers=1).rollout()
    with raises_sentence("stack='encoder'", "heads"):
        qkv_part(model, inputs, heads=1).rollout()


def qkv_part(model: Any, inputs: Any, **options: Any) -> Any:
    with qkv.capture_attention(model, inputs, **options) as captured:
        return captured


@torch.no_grad()
def test_what_was_not_captured_is_a_sentence() -> None:
    model, inputs, _ = built("qkv transformer")
    captured = qkv_part(model, inputs, layers=[0])
    with raises_sentence("stack='text'", "layers"):
        captured.select("text")
    with raises_sentence("layer=-1", "layers"):
        captured.select("encoder", layer=-1)
    with raises_sentence("stack=None", "encoder, decoder, cross"):
        captured.rollout()
    with raises_sentence("also=['gradients']", "torch.no_grad"):
        captured.gradients(torch.ones(()))
    assert [record.stack for record in captured[:2]] == ["encoder", "decoder"]


@torch.no_grad()
def test_a_record_counts_its_forwards() -> None:
    model: Any = jitter(qkv.QkvEncoderModel(tiny.encoder())).eval()
    with qkv.capture_attention(model, layers=-1, queries=slice(0, 2)) as captured:
        model(**tiny.text(length=9))
        model(**tiny.text(length=6))
    assert [(record.layer, record.step, record.num_queries) for record in captured] == [(1, 0, 9), (1, 1, 6)]
    joined = captured.join()
    assert joined.weights.shape == (2, 4, 4, 9) and joined.queries == [0, 1, 9, 10] and joined.num_queries == 15
    assert joined.weights[:, :, 2:, 6:].abs().max() == 0
