"""Scores and value-weighted norms are those of slow loops."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import qkv
import reference
from errors import raises_sentence
from families.attentions import FAMILIES, built
from qkv.scripts.attention import weights

RECURRENT = ("qkv rnnsearch", "qkv luong")


@pytest.mark.parametrize("name", [name for name in FAMILIES if "linear" not in name and name not in RECURRENT])
@torch.no_grad()
def test_scores_become_the_weights(name: str) -> None:
    model, inputs, _ = built(name)
    with qkv.capture_attention(model, inputs, also=["scores"], heads=[1, 3]) as captured:
        pass
    for record in captured:
        scores: Any = record.scores
        if name == "stock gpt-oss":  # a part of each row belongs to no key
            ratio = scores.exp() / record.weights
            assert (ratio.nan_to_num() - ratio.nan_to_num().amax(-1, keepdim=True))[
                record.weights > 0
            ].abs().max() < 1e-3
            assert record.weights.sum(-1).max() < 1
            continue
        torch.testing.assert_close(scores.softmax(-1).nan_to_num(), record.weights, rtol=1e-5, atol=1e-6)
        assert torch.equal(scores <= torch.finfo(scores.dtype).min, record.weights == 0)


# Where values of the last layer come from, what of them, and the output projection (H * K, D).
PARTS: dict[str, Callable[[Any], tuple[Any, slice, Tensor]]] = {
    "qkv bert": lambda model: attention_of(model.model.layers[-1].self_attn),
    "qkv llama": lambda model: attention_of(model.model.layers[-1].self_attn),
    "qkv mistral": lambda model: attention_of(model.model.layers[-1].self_attn),
    "stock llama": lambda model: attention_of(model.model.layers[-1].self_attn),
    "stock vit": lambda model: attention_of(model.layers[-1].attention),
    "stock bert": lambda model: (
        model.encoder.layer[-1].attention.self.value,
        slice(None),
        model.encoder.layer[-1].attention.output.dense.weight.T,
    ),
    "stock gpt2": lambda model: (
        model.transformer.h[-1].attn.c_attn,
        slice(64, None),
        model.transformer.h[-1].attn.c_proj.weight,
    ),
}


def attention_of(attention: Any) -> tuple[Any, slice, Tensor]:
    return attention.v_proj, slice(None), attention.o_proj.weight.T


@pytest.mark.parametrize("name", PARTS)
@torch.no_grad()
def test_norms_are_those_of_the_paper(name: str) -> None:
    model, inputs, _ = built(name)
    inputs = {key: value[:1] for key, value in inputs.items()}
    projector, part, projection = PARTS[name](model)
    values: list[Tensor] = []
    handle = projector.register_forward_hook(lambda _, given, output: values.append(output[..., part]))
    with qkv.capture_attention(model, inputs, layers=-1, heads=[3, 0], queries=[1, 3], also=["norms"]) as captured:
        handle.remove()
    (record,) = captured
    norms: Any = record.norms
    value = values[0][0].unflatten(-1, (-1, 8))
    for place, head in enumerate(record.heads):
        own = value[:, head * value.shape[1] // 4]
        given = record.weights[0, place], own, projection.unflatten(0, (4, 8))[head]
        torch.testing.assert_close(norms[0, place], reference.value_weighted_norms(*given), rtol=1e-4, atol=1e-5)
    assert (norms[:, 0] - norms[:, 1]).abs().max() > 1e-2


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in RECURRENT])
@torch.no_grad()
def test_every_family_has_norms(name: str) -> None:
    """Each is the weight times a length that the key has for all queries."""
    model, inputs, _ = built(name)
    with qkv.capture_attention(model, inputs, also=["norms"]) as captured:
        pass
    for record in captured:
        norms: Any = record.norms
        assert norms.shape == record.weights.shape and norms.abs().max() > 0.01
        lengths = torch.where(record.weights.abs() > 1e-3, norms / record.weights, torch.nan)
        spread = lengths - lengths.nanmedian(2, keepdim=True).values
        assert (spread.abs() / lengths.nanmedian(2, keepdim=True).values).nan_to_num().max() < 1e-3


def test_an_adapter_counts_in_the_projection() -> None:
    """The matrix is what the projection does, whatever it is made of."""
    attention = torch.nn.Module()
    attention.o_proj = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.Linear(3, 5)).double()
    first, last = attention.o_proj
    found = weights.output_projection(attention, torch.nn.Module(), 6)
    torch.testing.assert_close(found, (last.weight @ first.weight).T)


def test_an_attention_without_output_projection_is_a_sentence() -> None:
    with raises_sentence("also=['norms']", "o_proj"):
        weights.output_projection(torch.nn.Module(), torch.nn.Module(), 4)
