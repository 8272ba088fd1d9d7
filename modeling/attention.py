"""Self- and cross-attention: projections, heads and cache around an attention kernel.

Shapes: B batch, T queries, S keys, D hidden_size, H heads, G key-value heads, K head_dim.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache, StaticLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ..configuration.configuration_stack import StackConfig
from .context import NO_CONTEXT, LayerContext, Projected
from .kernel import by_mask, eager_attention, score_bias, with_sinks
from .normalization import QUERY_KEY_NORMS
from .position.hooks import PositionState, apply_rotation


class Gate(nn.Linear):
    """Project to logits of a gate, sigmoid(W x + b), which starts alike for every input, at sigmoid(1) = 0.73.

    The caller applies the sigmoid, for adapters and quantisers of linear maps know of no activation in one.

    Source: Jumper et al. 2021, AlphaFold 2, supplement, algorithm 7, line 4, and §1.11.4 on how gates start,
        https://doi.org/10.1038/s41586-021-03819-2
    Shapes: (..., D) -> (..., width)
    """

    def init_parameters(self, std: float) -> None:
        """Start with a bias of 1, where there is one, and without weights."""
        init.zeros_(self.weight)
        if self.bias is not None:
            init.ones_(self.bias)


class Attention(nn.Module):
    """Project to heads, mix values by the kernel, project back; G < H shares keys and values among queries.

    Normalised queries and keys (`query_key_norm`) bound the scores, however large the weights. A gate
    (`attention_gate`) lets a token ignore the output of a head, which a softmax cannot; it starts nearly open.

    Source: Vaswani et al. 2017, §3.2.2, https://arxiv.org/abs/1706.03762; grouped queries: Ainslie et al. 2023, §2.2,
        https://arxiv.org/abs/2305.13245; norms: Henry et al. 2020, https://arxiv.org/abs/2010.04245; gate: Jumper et
        al. 2021, supplement, algorithm 7, https://doi.org/10.1038/s41586-021-03819-2
    Shapes: (B, T, D) -> (B, T, D) and weights (B, H, T, S) or None
    """

    is_causal = False

    def __init__(self, config: StackConfig, layer_index: int) -> None:
        super().__init__()
        self.config, self.layer_idx, self.head_dim = config, layer_index, config.head_dim
        self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
        self.scaling = config.attention_multiplier or config.head_dim**-0.5
        self.score_options = {} if config.attn_logit_softcapping is None else {"softcap": config.attn_logit_softcapping}
        # Window size, for backends that build no mask.
        self.sliding_window = config.window_of(layer_index)
        wide, narrow = config.num_attention_heads * self.head_dim, config.num_key_value_heads * self.head_dim
        biased = config.biased_projections
        self.q_proj = nn.Linear(config.hidden_size, wide, bias="q_proj" in biased)
        self.k_proj = nn.Linear(config.hidden_size, narrow, bias="k_proj" in biased)
        self.v_proj = nn.Linear(config.hidden_size, narrow, bias="v_proj" in biased)
        self.o_proj = nn.Linear(wide, config.hidden_size, bias="o_proj" in biased)
        self.g_proj = Gate(config.hidden_size, wide, config.attention_gate is True) if config.attention_gate else None
        make = QUERY_KEY_NORMS[config.query_key_norm]
        self.q_norm, self.k_norm = make(config, config.num_attention_heads), make(config, config.num_key_value_heads)
        self.norm_rotated = config.query_key_norm == "head_after_rotation"

    def heads(self, projected: Tensor) -> Tensor:
        """Split the last dimension: (B, T, H * K) -> (B, H, T, K)."""
        return projected.view(*projected.shape[:-1], -1, self.head_dim).transpose(1, 2)

    def query(self, hidden: Tensor) -> Tensor:
        """Project queries: (B, T, D) -> (B, H, T, K)."""
        heads = self.heads(self.q_proj(hidden))
        return heads if self.q_norm is None or self.norm_rotated else self.q_norm(heads)

    def key(self, hidden: Tensor) -> Tensor:
        """Project keys: (B, S, D) -> (B, G, S, K)."""
        heads = self.heads(self.k_proj(hidden))
        return heads if self.k_norm is None or self.norm_rotated else self.k_norm(heads)

    def value(self, hidden: Tensor) -> Tensor:
        """Project values, which never see a position: (B, S, D) -> (B, G, S, K)."""
        return self.heads(self.v_proj(hidden))

    def output(self, mixed: Tensor, hidden: Tensor) -> Tensor:
        """Scale the heads' outputs by the gate of the queries' input, if any, and project them: (B, T, D) -> same."""
        return self.o_proj(mixed if self.g_proj is None else mixed * self.g_proj(hidden).sigmoid())

    @property
    def dropout(self) -> float:
        """The share of attention weights that are dropped, in training."""
        return float(self.config.attention_dropout) if self.training else 0.0


class SelfAttention(Attention):
    """Read from the same sequence; keys and values of earlier calls come from the cache.

    A learned logit of each head beside those of keys, its sink, lets a token read nothing (`attention_sinks`).

    Source: Vaswani et al. 2017, §3.2.3, https://arxiv.org/abs/1706.03762; sinks: OpenAI 2025, gpt-oss model card, §2.2,
        https://arxiv.org/abs/2508.10925
    Shapes: (B, T, D) -> (B, T, D) and weights (B, H, T, S) or None
    """

    def __init__(self, config: StackConfig, layer_index: int) -> None:
        super().__init__(config, layer_index)
        self.is_causal = config.causal
        if config.attention_sinks:  # transformers' paged attention asks whether a module has this name
            self.sinks = nn.Parameter(torch.empty(config.num_attention_heads))

    def init_parameters(self, std: float) -> None:
        """Start with small sinks."""
        if self.config.attention_sinks:
            init.normal_(self.sinks, std=std)

    def forward(self, hidden: Tensor, context: LayerContext = NO_CONTEXT) -> tuple[Tensor, Tensor | None]:
        dropout, window = self.dropout, self.sliding_window
        options = {"dropout": dropout, "sliding_window": window, **self.score_options, **context.options}
        query, key, value = (context.project or type(self).projected)(self, hidden, context)
        key, value = self.remember(key, value, context.cache, options)
        backend = context.backend or self.config._attn_implementation
        bias = score_bias(self.added_scores(query, key, context.position), query, backend)
        # vLLM finds the attention of a layer, and its scaling, by reading these lines.
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(backend, eager_attention)
        attend = by_mask(with_sinks(attend, self.sinks) if self.config.attention_sinks else attend, context.mask)
        mixed, weights = attend(
            self, query, key, value, context.mask, scaling=self.scaling, position_bias=bias, **options
        )
        return self.output(join_heads(mixed, query), context.select(hidden)), weights

    def projected(self, hidden: Tensor, context: LayerContext) -> Projected:
        """Project to heads, queries and keys with positions: (B, T, D) -> (B, H, T, K), 2 x (B, G, T, K)."""
        value = self.value(hidden)
        return *self.placed(hidden, context), value

    def placed(self, hidden: Tensor, context: LayerContext) -> tuple[Tensor, Tensor]:
        """Project queries and keys and give them their positions: (B, T, D) -> (B, H, T, K), (B, G, T, K)."""
        placed = add_position(hidden, context.position.query_key)
        key = self.key(placed)
        query, key = apply_rotation(self.query(context.select(placed)), key, context.position.rotation)
        return (self.q_norm(query), self.k_norm(key)) if self.norm_rotated else (query, key)

    def added_scores(self, query: Tensor, key: Tensor, position: PositionState) -> Tensor | None:
        """Return the bias of scores: (B, H, T, K), (B, G, S, K) -> (B or 1, H, T, S)."""
        return position.bias

    def remember(
        self, key: Tensor, value: Tensor, cache: Cache | None, options: dict[str, object]
    ) -> tuple[Tensor, Tensor]:
        """Write keys and values to the cache, and return all of it: 2 x (B, G, T, K) -> 2 x (B, G, S, K)."""
        # The paged cache of continuous batching writes to the options of the attention function, too.
        cache = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
        return (key, value) if cache is None else cache.update(key, value, self.layer_idx, kwargs=options)


class CrossAttention(Attention):
    """Read from an encoder's output; its keys and values are computed once and then cached.

    Source: Vaswani et al. 2017, §3.2.3, https://arxiv.org/abs/1706.03762
    Shapes: (B, T, D), memory (B, S, D) -> (B, T, D) and weights (B, H, T, S) or None
    """

    def forward(self, hidden: Tensor, context: LayerContext) -> tuple[Tensor, Tensor | None]:
        memory, position = context.memory, context.position
        key, value = self.cached_key_value(cast(Tensor, memory.hidden), position.memory_key, context.cache)
        query = self.query(add_position(hidden, position.query_key))
        backend = context.backend or self.config._attn_implementation
        options = {"dropout": self.dropout, "position_bias": None, **context.options}
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(backend, eager_attention)
        attend = by_mask(attend, memory.mask)
        mixed, weights = attend(self, query, key, value, memory.mask, scaling=self.scaling, **options)
        return self.output(join_heads(mixed, query), hidden), weights

    def cached_key_value(
        self, memory: Tensor, added: Tensor | None, past_key_values: Cache | None
    ) -> tuple[Tensor, Tensor]:
        """Return keys and values of memory, from the cache when they are there: (B, S, D) -> 2 x (B, G, S, K)."""
        if not isinstance(past_key_values, EncoderDecoderCache):
            return self.key(add_position(memory, added)), self.value(memory)
        cache = past_key_values.cross_attention_cache
        if not past_key_values.is_updated.get(self.layer_idx):
            lift_window(cache.layers, self.layer_idx, memory.shape[1])
            cache.update(self.key(add_position(memory, added)), self.value(memory), self.layer_idx)
            past_key_values.is_updated[self.layer_idx] = True
        # A static cache may have room for more.
        layer: Any = cache.layers[self.layer_idx]
        return layer.keys[:, :, : memory.shape[1]], layer.values[:, :, : memory.shape[1]]


def join_heads(mixed: Tensor, query: Tensor) -> Tensor:
    """Join the heads of (B, H, T, K) queries, also where a backend gives one row of all: (B, T, H, K) -> (B, T, D)."""
    return mixed.reshape(query.shape[0], query.shape[2], -1)


def add_position(hidden: Tensor, added: Tensor | None) -> Tensor:
    """Add a position's vectors, where it has some."""
    return hidden if added is None else hidden + added


def lift_window(layers: list[Any], index: int, length: int) -> None:
    """Let a cache layer hold all of memory: transformers builds both caches from the decoder's config and windows."""
    if index < len(layers) and layers[index].is_sliding:
        layers[index] = StaticLayer(length) if isinstance(layers[index], StaticLayer) else DynamicLayer()
