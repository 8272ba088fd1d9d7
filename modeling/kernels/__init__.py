"""Attention kernels: the words of `config.kernel`, each as self-attention and as cross-attention."""

from ..attention import CrossAttention, SelfAttention
from .gated_delta import GatedDeltaAttention
from .linear import LinearCrossAttention, LinearSelfAttention

KERNELS: dict[str, type[SelfAttention]] = {
    "softmax": SelfAttention,
    "linear": LinearSelfAttention,
    "gated_delta": GatedDeltaAttention,
}
# The delta rule has an order, which memory has not: the config refuses it there.
CROSS_KERNELS: dict[str, type[CrossAttention]] = {"softmax": CrossAttention, "linear": LinearCrossAttention}
