"""One layer: self-attention, cross-attention where there is memory, feed-forward, each on a residual connection.

Shapes: B batch, T tokens, S memory, D hidden_size.
"""

from typing import Any

import torch
from torch import Tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from ..configuration.configuration_stack import StackConfig
from .attention import CrossAttention
from .feed_forward import FEED_FORWARDS
from .kernels import CROSS_KERNELS, KERNELS
from .masking import Mask
from .normalization import Residual
from .position.hooks import PositionState


class Layer(GradientCheckpointingLayer):
    """Mix between positions, then transform each position; gradient checkpointing recomputes it as one piece.

    With `parallel_residual` both read the same input, which lets their matrix products run side by side. In training
    the layer is skipped for a whole batch with probability `layerdrop`. `state` are the fields of a `PositionState`,
    one by one: reentrant checkpointing finds gradients only in tensors that are given by place.

    Source: Vaswani et al. 2017, §3.1, figure 1, https://arxiv.org/abs/1706.03762; parallel: Black et al. 2022,
        GPT-NeoX-20B, §2.1.2, https://arxiv.org/abs/2204.06745; layerdrop: Fan et al. 2020, §3, https://arxiv.org/abs/1909.11556
    Shapes: (B, T, D), memory (B, S, D) -> (B, T, D)
    """

    def __init__(self, config: StackConfig, layer_index: int) -> None:
        super().__init__()
        self.self_attn = KERNELS[config.kernel](config, layer_index)
        self.self_attn_residual = Residual(config, layer_index, normed=layer_index > 0 or not config.skip_first_norm)
        self.cross_attn: CrossAttention | None = None
        self.cross_attn_residual: Residual | None = None
        if getattr(config, "cross_attention", False):
            self.cross_attn = CROSS_KERNELS[config.kernel](config, layer_index)
            self.cross_attn_residual = Residual(config, layer_index)
        self.mlp = FEED_FORWARDS[config.feed_forward](config)
        self.mlp_residual = Residual(config, layer_index)
        self.parallel = config.parallel_residual
        self.layerdrop = config.layerdrop

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Mask = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Mask = None,
        *state: Any,
        **kwargs: object,
    ) -> Tensor:
        if self.training and self.layerdrop and torch.rand(()) < self.layerdrop:
            return hidden_states
        position, memory = PositionState(*state), (encoder_hidden_states, encoder_attention_mask)
        given = {"hidden": self.self_attn_residual.input(hidden_states), "attention_mask": attention_mask}
        branch, _ = self.self_attn(**given, position=position, **kwargs)
        hidden_states = position.selected(hidden_states)
        hidden = self.self_attn_residual(hidden_states, branch)
        if self.cross_attn is not None and self.cross_attn_residual is not None:
            branch, _ = self.cross_attn(self.cross_attn_residual.input(hidden), *memory, position, **kwargs)
            hidden = self.cross_attn_residual(hidden, branch)
        branch = self.mlp(self.mlp_residual.input(hidden_states if self.parallel else hidden))
        return self.mlp_residual(hidden, branch)
