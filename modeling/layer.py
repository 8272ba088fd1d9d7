"""One layer: self-attention, cross-attention where there is memory, feed-forward, each on a residual connection.

Shapes: B batch, T tokens, S memory, D hidden_size.
"""

from typing import ClassVar

import torch
from torch import Tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from ..configuration.configuration_stack import StackConfig
from .attention import CrossAttention
from .context import NO_CONTEXT, LayerContext
from .experts import FEED_FORWARDS
from .kernels import CROSS_KERNELS, KERNELS
from .normalization import Residual


class Layer(GradientCheckpointingLayer):
    """Mix between positions, then transform each position; gradient checkpointing recomputes it as one piece.

    In training the layer is skipped for a whole batch with probability `layerdrop`.

    Source: Vaswani et al. 2017, §3.1, figure 1, https://arxiv.org/abs/1706.03762; layerdrop: Fan et al. 2020, §3,
        https://arxiv.org/abs/1909.11556
    Shapes: (B, T, D), memory (B, S, D) -> (B, T, D)
    """

    # Whether the feed-forward network has no norm of its own.
    shares_norm: ClassVar[bool] = False

    def __init__(self, config: StackConfig, layer_index: int) -> None:
        super().__init__()
        self.self_attn = KERNELS[config.layer_kernels[layer_index]](config, layer_index)
        self.self_attn_residual = Residual(config, layer_index, normed=layer_index > 0 or not config.skip_first_norm)
        self.cross_attn: CrossAttention | None = None
        self.cross_attn_residual: Residual | None = None
        if getattr(config, "cross_attention", False):
            self.cross_attn = CROSS_KERNELS[config.layer_kernels[layer_index]](config, layer_index)
            self.cross_attn_residual = Residual(config, layer_index)
        self.mlp = FEED_FORWARDS[config.layer_feed_forwards[layer_index]](config)
        self.mlp_residual = Residual(config, layer_index, normed=not self.shares_norm)
        self.mlp_residual.clamp = config.float16_clamp
        self.layerdrop = config.layerdrop

    def forward(self, hidden: Tensor, context: LayerContext = NO_CONTEXT) -> Tensor:
        if self.training and self.layerdrop and torch.rand(()) < self.layerdrop:
            return hidden
        read = self.self_attn_residual.input(hidden)
        branch, _ = self.self_attn(hidden=read, context=context)
        after = self.self_attn_residual(context.select(hidden), branch)
        if self.cross_attn is not None and self.cross_attn_residual is not None:
            branch, _ = self.cross_attn(hidden=self.cross_attn_residual.input(after), context=context)
            after = self.cross_attn_residual(after, branch)
        branch = self.mlp(self.mlp_residual.input(self.mlp_reads(hidden, read, after, context)))
        return self.mlp_residual(after, branch)

    def mlp_reads(self, hidden: Tensor, read: Tensor, after: Tensor, context: LayerContext) -> Tensor:
        """Select the input of the feed-forward network and its norm: the output of attention, not its input."""
        return after


class ParallelLayer(Layer):
    """Mix between positions and transform each position from the same input, so that their products run side by side.

    Source: Black et al. 2022, GPT-NeoX-20B, §2.1.2, https://arxiv.org/abs/2204.06745
    Shapes: (B, T, D), memory (B, S, D) -> (B, T, D)
    """

    def mlp_reads(self, hidden: Tensor, read: Tensor, after: Tensor, context: LayerContext) -> Tensor:
        return context.select(hidden)


class SharedNormLayer(Layer):
    """Let attention and feed-forward network read one normed input, as `ParallelLayer` with one norm for both.

    Source: Wang & Komatsuzaki 2021, GPT-J-6B, its code, https://github.com/kingoflolz/mesh-transformer-jax
    Shapes: (B, T, D), memory (B, S, D) -> (B, T, D)
    """

    shares_norm = True

    def mlp_reads(self, hidden: Tensor, read: Tensor, after: Tensor, context: LayerContext) -> Tensor:
        return context.select(read)


LAYERS: dict[bool | str, type[Layer]] = {False: Layer, True: ParallelLayer, "shared_norm": SharedNormLayer}
