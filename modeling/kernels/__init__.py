"""Attention kernels: the words of `config.kernel`, each as self-attention and as cross-attention."""

from collections.abc import Callable
from typing import Any

from torch import nn

from ..attention import CrossAttention, SelfAttention
from .delta_net import GatedDeltaNet
from .gated_delta import GatedDeltaAttention
from .linear import LinearCrossAttention, LinearSelfAttention


def delta_attention(config: Any, layer_index: int) -> nn.Module:
    """Return the module of the gated delta rule, with a short convolution before it or without.

    Source: Yang, Kautz & Hatamizadeh 2024, Gated Delta Networks, §3.3, https://arxiv.org/abs/2412.06464
    Shapes: (B, T, D) -> (B, T, D) and no weights
    """
    return (GatedDeltaNet if config.linear_conv_kernel_dim else GatedDeltaAttention)(config, layer_index)


KERNELS: dict[str, Callable[[Any, int], nn.Module]] = {
    "softmax": SelfAttention,
    "linear": LinearSelfAttention,
    "gated_delta": delta_attention,
}
# The delta rule has an order, which memory has not: the config refuses it there.
CROSS_KERNELS: dict[str, type[CrossAttention]] = {"softmax": CrossAttention, "linear": LinearCrossAttention}
