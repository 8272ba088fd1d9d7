"""Attention kernels: what `config.kernel` can say, each as self-attention and as cross-attention."""

from ..attention import CrossAttention, SelfAttention
from .linear import LinearCrossAttention, LinearSelfAttention

KERNELS: dict[str, type[SelfAttention]] = {"softmax": SelfAttention, "linear": LinearSelfAttention}
CROSS_KERNELS: dict[str, type[CrossAttention]] = {"softmax": CrossAttention, "linear": LinearCrossAttention}
