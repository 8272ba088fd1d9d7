"""How does a token read from others? Projections, heads and cache, once for self- and once for cross-attention.

Shapes: B batch, T queries, S keys, D hidden_size, H heads, G key-value heads, K head_dim.
"""

from typing import Any

from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache, StaticLayer

from ..configuration.configuration_stack import StackConfig
from .kernel import KERNELS
from .normalization import NORMS
from .position import rotate


class Attention(nn.Module):
    """Project to heads, mix values by the kernel, project back; G < H shares keys and values among queries.

    Normalised queries and keys (`query_key_norm`) bound the scores, whatever the weights grow to.

    Source: Vaswani et al. 2017, §3.2.2, https://arxiv.org/abs/1706.03762; grouped queries: Ainslie et al. 2023, §2.2,
        https://arxiv.org/abs/2305.13245; norms: Henry et al. 2020, https://arxiv.org/abs/2010.04245
    Shapes: (B, T, D) -> (B, T, D) and weights (B, H, T, S) or None
    """

    is_causal = False

    def __init__(self, config: StackConfig, layer_index: int) -> None:
        super().__init__()
        self.config, self.layer_idx, self.head_dim = config, layer_index, config.head_dim
        self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
        self.scaling = config.attention_multiplier or config.head_dim**-0.5
        # What backends that build no mask of their own have to be told.
        self.sliding_window = config.window_of(layer_index)
        wide, narrow = config.num_attention_heads * self.head_dim, config.num_key_value_heads * self.head_dim
        self.q_proj = nn.Linear(config.hidden_size, wide, bias=config.attention_bias)
        self.k_proj = nn.Linear(config.hidden_size, narrow, bias=bool(config.attention_key_bias))
        self.v_proj = nn.Linear(config.hidden_size, narrow, bias=config.attention_bias)
        self.o_proj = nn.Linear(wide, config.hidden_size, bias=bool(config.attention_output_bias))
        self.q_norm = NORMS[config.norm](config, self.head_dim) if config.query_key_norm else nn.Identity()
        self.k_norm = NORMS[config.norm](config, self.head_dim) if config.query_key_norm else nn.Identity()

    def heads(self, projected: Tensor) -> Tensor:
        """Split the last dimension: (B, T, H * K) -> (B, H, T, K)."""
        return projected.view(*projected.shape[:-1], -1, self.head_dim).transpose(1, 2)

    def mix(self, query: Tensor, key: Tensor, value: Tensor, mask: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        """Run the kernel and join the heads: (B, H, T, K) -> (B, T, D)."""
        dropout = self.config.attention_dropout if self.training else 0.0
        mixed, weights = KERNELS[self.config.kernel](
            self, query, key, value, mask, scaling=self.scaling, dropout=dropout, **kwargs
        )
        return self.o_proj(mixed.flatten(2)), weights


class SelfAttention(Attention):
    """Read from the same sequence; keys and values of earlier calls come from the cache.

    Source: Vaswani et al. 2017, §3.2.3, https://arxiv.org/abs/1706.03762
    Shapes: (B, T, D) -> (B, T, D) and weights (B, H, T, S) or None
    """

    def __init__(self, config: StackConfig, layer_index: int) -> None:
        super().__init__(config, layer_index)
        self.is_causal = config.causal

    def forward(
        self,
        hidden: Tensor,
        attention_mask: Any = None,
        position_embeddings: Any = None,
        past_key_values: Cache | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        value = self.heads(self.v_proj(hidden))
        # CODEPATH: DETR, whose positions are added in every layer
        if self.config.position in ("sinusoidal_2d", "sinusoidal_2d_and_input", "slots"):
            hidden, position_embeddings = hidden + position_embeddings, None
        query = rotate(self.q_norm(self.heads(self.q_proj(hidden))), position_embeddings)
        key = rotate(self.k_norm(self.heads(self.k_proj(hidden))), position_embeddings)
        if isinstance(past_key_values, EncoderDecoderCache):
            past_key_values = past_key_values.self_attention_cache
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        return self.mix(query, key, value, attention_mask, sliding_window=self.sliding_window, **kwargs)


class CrossAttention(Attention):
    """Read from an encoder's output; its keys and values are computed once and then cached.

    Source: Vaswani et al. 2017, §3.2.3, https://arxiv.org/abs/1706.03762
    Shapes: (B, T, D), memory (B, S, D) -> (B, T, D) and weights (B, H, T, S) or None
    """

    def forward(
        self,
        hidden: Tensor,
        memory: Tensor,
        attention_mask: Any = None,
        position_embeddings: Any = None,
        past_key_values: Cache | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        # CODEPATH: DETR, whose positions are added in every layer, those of memory too
        if self.config.position in ("slots",):
            hidden = hidden + position_embeddings
            places = kwargs.pop("encoder_position_embeddings")
            keyed = memory if places is None else memory + places
            key, value = self.k_norm(self.heads(self.k_proj(keyed))), self.heads(self.v_proj(memory))
        else:
            key, value = self.remember(memory, past_key_values)
        query = self.q_norm(self.heads(self.q_proj(hidden)))
        return self.mix(query, key, value, attention_mask, **kwargs)

    def remember(self, memory: Tensor, past_key_values: Cache | None) -> tuple[Tensor, Tensor]:
        """Keys and values of memory, from the cache when they are there: (B, S, D) -> 2 x (B, G, S, K)."""
        if not isinstance(past_key_values, EncoderDecoderCache):
            return self.k_norm(self.heads(self.k_proj(memory))), self.heads(self.v_proj(memory))
        cache: Any = past_key_values.cross_attention_cache
        if not past_key_values.is_updated.get(self.layer_idx):
            lift_window(cache.layers, self.layer_idx, memory.shape[1])
            cache.update(self.k_norm(self.heads(self.k_proj(memory))), self.heads(self.v_proj(memory)), self.layer_idx)
            past_key_values.is_updated[self.layer_idx] = True
        # A static cache may have room for more.
        kept = cache.layers[self.layer_idx]
        return kept.keys[:, :, : memory.shape[1]], kept.values[:, :, : memory.shape[1]]


def lift_window(layers: list[Any], index: int, length: int) -> None:
    """Let a cache layer hold all of memory: transformers builds both caches from the decoder's config and windows."""
    if index < len(layers) and layers[index].is_sliding:
        layers[index] = StaticLayer(length) if isinstance(layers[index], StaticLayer) else DynamicLayer()
