"""Compare a mechanism with its slow loop: values and gradients, in double precision throughout."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._higher_order_ops.flex_attention import math_attention
from torch.nn.attention import flex_attention
from transformers.integrations.flex_attention import WrappedFlexAttention

import reference
from qkv.configuration import (
    QkvAudioEncoderConfig,
    QkvDecoderConfig,
    QkvEncoderConfig,
    QkvImageEncoderConfig,
    QkvPairConfig,
)
from qkv.modeling.position import POSITIONS

EXACT = 1e-12
# Odd where they may be: a transposed or mispaired axis then has the wrong size instead of the wrong numbers.
SIZES = {"hidden_size": 6, "num_hidden_layers": 3, "num_attention_heads": 3, "head_dim": 4, "intermediate_size": 7}
TEXT = {**SIZES, "vocab_size": 11, "max_position_embeddings": 13}
# Widths of residues and pairs that divide into heads, all different.
PAIR = {"vocab_size": 11, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 7, "num_hidden_layers": 2}
PAIR |= {"pair_hidden_size": 6, "num_pair_attention_heads": 3, "pair_intermediate_size": 5, "outer_product_size": 3}
PAIR |= {"relative_position_bins": 2}
IMAGE = {**SIZES, "image_size": [6, 10], "patch_size": 2, "num_channels": 3}


def encoder(**fields: Any) -> QkvEncoderConfig:
    return QkvEncoderConfig(**{**TEXT, **fields})


def vision(**fields: Any) -> QkvImageEncoderConfig:
    return QkvImageEncoderConfig(**{**IMAGE, **fields})


def audio(**fields: Any) -> QkvAudioEncoderConfig:
    return QkvAudioEncoderConfig(**{**TEXT, "num_mel_bins": 6, **fields})


def decoder(**fields: Any) -> QkvDecoderConfig:
    return QkvDecoderConfig(**{**TEXT, **fields})


def pair(**fields: Any) -> QkvPairConfig:
    return QkvPairConfig(**{**PAIR, **fields})


@contextmanager
def exact() -> Iterator[None]:
    """Let what is computed in single precision whatever the model's dtype, positions above all, be computed in double.

    Published checkpoints were trained with angles in single precision, so the package keeps it; here the algebra is
    compared and not the rounding, which `position/test_relative.py` compares with transformers bit by bit.
    """
    torch.set_default_dtype(torch.float64)
    try:
        with mock.patch.object(torch, "float32", torch.float64), mock.patch.object(torch, "float", torch.float64):
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def jittered(module: nn.Module) -> nn.Module:
    """In double precision, with parameters that are all different: biases of zero and gains of one hide mistakes."""
    module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.7)
    return module


def linear_of(layer: nn.Linear, x: Tensor) -> Tensor:
    """Apply a linear map as a loop."""
    return reference.linear(x, layer.weight, layer.bias)


def norm_of(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    """Apply a layer norm as a loop."""
    return reference.layer_norm(x, norm.weight, norm.bias, norm.eps)


def gate_of(module: nn.Module) -> tuple[Tensor, Tensor] | None:
    """Weight and bias of an attention's gate."""
    gate = module.g_proj
    return None if gate is None else (gate.weight, gate.bias)


def assert_same(actual: Tensor, expected: Tensor, *leaves: Tensor, tolerance: float = EXACT) -> None:
    """Equal values and, for every leaf, equal gradients of a random weighting of the values."""
    assert actual.shape == expected.shape and actual.dtype == expected.dtype
    assert (actual - expected).abs().max() <= tolerance
    if leaves:
        upstream = torch.randn_like(expected)
        mine, theirs = (torch.autograd.grad(value, leaves, upstream, retain_graph=True) for value in (actual, expected))
        for one, other in zip(mine, theirs, strict=True):
            assert (one - other).abs().max() <= tolerance


def learned(model: nn.Module, real: Tensor | None = None, **inputs: Any) -> list[Tensor]:
    """The last hidden state, of real tokens alone, and the gradients that a weighting of it leaves."""
    model.zero_grad()
    hidden = model(**inputs).last_hidden_state
    hidden = hidden if real is None else hidden * real[..., None]
    (hidden * torch.linspace(-1, 1, hidden.numel()).view_as(hidden)).sum().backward()
    return [hidden.detach(), *(weight.grad.clone() for weight in model.parameters() if weight.grad is not None)]


def assert_alike(actual: list[Tensor], expected: list[Tensor]) -> None:
    """Equal numbers, computed in another order."""
    for one, other in zip(actual, expected, strict=True):
        assert (one - other).abs().max() <= 100 * EXACT * (1 + other.abs().max())


def dense_flex(query: Tensor, key: Tensor, value: Tensor, **kwargs: Any) -> Tensor:
    """torch's own dense definition of flex attention, called so that autograd sees the score function's bias."""
    block_mask = kwargs["block_mask"] or flex_attention._create_empty_block_mask(query, key)
    mask = block_mask.as_tuple()
    return math_attention(query, key, value, kwargs["score_mod"], mask, kwargs["scale"], {})[0]


@contextmanager
def differentiable_flex() -> Iterator[None]:
    """Let flex attention run on a CPU with gradients, which torch offers on accelerators only.

    Masks, score function and everything before it are those of a real run; only the fused kernel is replaced.
    """
    with mock.patch.object(WrappedFlexAttention, "__call__", lambda self: dense_flex):
        torch.compiler.set_stance("force_eager")
        try:
            yield
        finally:
            torch.compiler.set_stance("default")


# Positions the tests are trained on, and rows that differ, do not start at zero and skip.
TRAINED = 13
PLACES = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [3, 4, 5, 7, 8, 11, 12]])


def encoding(config):
    """The position encoding of a config, with parameters that are not what they start as."""
    return jittered(POSITIONS[config.position](config))
