"""Feed-forward networks, which a layer applies to each position by itself.

Shapes: B batch, T tokens, D hidden_size, F intermediate_size.
"""

from collections import ChainMap
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.activations import ACT2FN, XIELUActivation

from ..configuration.configuration_stack import StackConfig


def gelu_bloom(hidden: Tensor) -> Tensor:
    """Compute GELU by a hyperbolic tangent, with sqrt(2 / pi) cut to the eight digits BLOOM was trained with.

    Source: Hendrycks & Gimpel 2016, §2, https://arxiv.org/abs/1606.08415; digits: Megatron-LM, `fused_bias_gelu`,
        https://arxiv.org/abs/1909.08053
    Shapes: (..., F) -> (..., F)
    """
    return 0.5 * hidden * (1.0 + torch.tanh(0.79788456 * hidden * (1.0 + 0.044715 * hidden * hidden)))


# GPT-2's in one operation, of which transformers takes eight.
gelu_new = partial(F.gelu, approximate="tanh")
# The activations of transformers, and others.
ACTIVATIONS: ChainMap[str, Any] = ChainMap({"gelu_bloom": gelu_bloom, "gelu_new": gelu_new}, ACT2FN)


def make_activation(word: str) -> Any:
    """Return an activation; parameters of one are in the dtype that models are built in, not in bfloat16.

    Source: xielu: Huang & Schlag 2024, Deriving Activation Functions Using Integration, eq. 5,
        https://arxiv.org/abs/2411.13010
    """
    return XIELUActivation(dtype=torch.get_default_dtype()) if word == "xielu" else ACTIVATIONS[word]


class MLP(nn.Module):
    """Widen, activate, narrow: down(act(up(x))), the same at every position.

    Source: Vaswani et al. 2017, §3.3, eq. 2, https://arxiv.org/abs/1706.03762
    Shapes: (B, T, D) -> (B, T, D)
    """

    def __init__(self, config: StackConfig, size: int | None = None) -> None:
        super().__init__()
        size = size or config.intermediate_size
        self.up_proj = nn.Linear(config.hidden_size, size, bias=config.mlp_bias)
        self.down_proj = nn.Linear(size, config.hidden_size, bias=config.mlp_bias)
        self.act_fn = make_activation(config.hidden_act)
        self.dropout = nn.Dropout(config.activation_dropout)
        self.keeps_single = config.float16_clamp == "branch"

    def forward(self, hidden: Tensor) -> Tensor:
        inner = self.inner(hidden)
        if self.keeps_single and self.down_proj.weight.dtype == torch.float32:
            inner = inner.float()
        return self.down_proj(self.dropout(inner) if self.dropout.training else inner)

    def inner(self, hidden: Tensor) -> Tensor:
        """Compute the hidden activations: (B, T, D) -> (B, T, F)."""
        return self.act_fn(self.up_proj(hidden))


class GLU(MLP):
    """Let an activated gate scale each inner unit: down(act(gate(x)) * up(x)).

    A third matrix buys lower perplexity at equal parameters.

    Source: Shazeer 2020, GLU Variants Improve Transformer, eq. 6, https://arxiv.org/abs/2002.05202
    Shapes: (B, T, D) -> (B, T, D)
    """

    def __init__(self, config: StackConfig, size: int | None = None) -> None:
        super().__init__(config, size)
        self.gate_proj = nn.Linear(config.hidden_size, size or config.intermediate_size, bias=config.mlp_bias)

    def inner(self, hidden: Tensor) -> Tensor:
        return self.act_fn(self.gate_proj(hidden)) * self.up_proj(hidden)
