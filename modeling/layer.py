"""What is one layer? Self-attention, cross-attention where there is memory, feed-forward, each a residual line.

Shapes: B batch, T tokens, S memory, D hidden_size.
"""

from typing import Any

import torch
from torch import Tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from ..configuration.configuration_stack import StackConfig
from .attention import CrossAttention, SelfAttention
from .feed_forward import FEED_FORWARDS
from .normalization import Residual


class Layer(GradientCheckpointingLayer):
    """Mix between positions, then transform each position; gradient checkpointing recomputes it as one piece.

    With `parallel_residual` both read the same input, which lets their matrix products run side by side. In training
    the layer is skipped for a whole batch with probability `layerdrop`.

    Source: Vaswani et al. 2017, §3.1, figure 1, https://arxiv.org/abs/1706.03762; parallel: Black et al. 2022,
        GPT-NeoX-20B, §2.1.2, https://arxiv.org/abs/2204.06745; layerdrop: Fan et al. 2020, §3, https://arxiv.org/abs/1909.11556
    Shapes: (B, T, D), memory (B, S, D) -> (B, T, D)
    """

    def __init__(self, config: StackConfig, layer_index: int) -> None:
        super().__init__()
        self.self_attn = SelfAttention(config, layer_index)
        self.self_attn_residual = Residual(config, layer_index, normed=layer_index > 0 or not config.skip_first_norm)
        self.cross_attn: Any = None
        self.cross_attn_residual: Any = None
        if getattr(config, "cross_attention", False):
            self.cross_attn = CrossAttention(config, layer_index)
            self.cross_attn_residual = Residual(config, layer_index)
        self.mlp = FEED_FORWARDS[config.feed_forward](config)
        self.mlp_residual = Residual(config, layer_index)
        self.parallel = config.parallel_residual
        self.layerdrop = config.layerdrop

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Any = None,
        position_embeddings: Any = None,
        position_bias: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Any = None,
        **kwargs: Any,
    ) -> Tensor:
        if self.training and self.layerdrop and torch.rand(()) < self.layerdrop:
            return hidden_states
        own = {"position_embeddings": position_embeddings, "position_bias": position_bias, **kwargs}
        memory = (encoder_hidden_states, encoder_attention_mask, position_embeddings)
        hidden = self.self_attn_residual(hidden_states, lambda x: self.self_attn(x, attention_mask, **own)[0])
        if self.cross_attn is not None:
            hidden = self.cross_attn_residual(hidden, lambda x: self.cross_attn(x, *memory, **kwargs)[0])
        # Not the module itself: accelerate moves every argument that has a device, weights on disk too.
        return self.mlp_residual(hidden_states if self.parallel else hidden, lambda x: self.mlp(x), hidden)
