"""Attention of causal texts without a mask by cuDNN's kernel, where it has one, before those of FlashAttention-2.

Shapes: B batch, T tokens, H heads, G key-value heads, K head_dim.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ...configuration.axes import BIAS_POSITIONS
from ..execution import Plan, StackInputs, StackParts
from ..kernel import AttentionFunction, computed_dtype
from ..masks.masking import Mask, SparseMask

# Of these kernels the first that can compute a call does.
ORDER = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
# By type of device: the dtypes in which this order was measured to be faster. A GPU has no row until one was measured:
# `gpu-clm-train-1024` and `gpu-llama-train-1024` of the lab time it.
FASTER: dict[str, tuple[torch.dtype, ...]] = {}


class CudnnFirst(SparseMask):
    """The mask that hides nothing but later tokens, with an order of kernels."""

    def attend(self, function: AttentionFunction, *heads: Any, **options: Any) -> tuple[Tensor, Tensor | None]:
        """Attend by the first kernel in the order: (B, H, T, K), 2 x (B, G, T, K) -> (B, T, H, K)."""
        with sdpa_kernel(ORDER, set_priority=True):
            return function(*heads[:-1], None, **options)


class CudnnPlan(Plan):
    """Compute every token, with an order of kernels where a pattern needs no mask."""

    @classmethod
    def of(cls, stack: StackParts, inputs: StackInputs) -> "CudnnPlan | None":
        """Return the plan where a stack asks for it, or where it was measured to be faster."""
        hidden, config = inputs.embedded.hidden, stack.config
        faster = computed_dtype(hidden) in FASTER.get(hidden.device.type, ())
        wanted = faster if stack.cudnn_first is None else stack.cudnn_first
        # A cache grows, and cuDNN plans its work for each length anew.
        can = (config.causal, config.kernel, inputs.backend, inputs.cache) == (True, "softmax", "sdpa", None)
        return cls(stack, inputs) if wanted and can and config.position_word not in BIAS_POSITIONS else None

    def mask(self, pattern: str) -> Mask:
        mask = super().mask(pattern)
        return CudnnFirst() if mask is None else mask
