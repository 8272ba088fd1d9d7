"""Linear attention: values mixed by products of features of queries and keys, without a score for any pair.

Shapes: B batch, T queries, S keys, D hidden_size, H heads, G key-value heads, K head_dim.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.cache_utils import Cache, EncoderDecoderCache

from ...configuration.configuration_stack import StackConfig
from ..attention import CrossAttention, SelfAttention, add_position, join_heads
from ..context import NO_CONTEXT, LayerContext
from ..masks.masking import TokenMask
from ..position.hooks import Rotation, apply_rotation
from .chunks import Chunks, causal_products, causal_sums, segment_tokens
from .state_cache import State, StateLayer, state_layer


class Features(NamedTuple):
    """Features of queries and keys, and values, in single precision at least; rotated ones are for sums of values.

    Shapes: query and rotated_query (B, G, H / G, T, K), key, rotated_key and value (B, G, 1, S, K)
    """

    query: Tensor
    key: Tensor
    rotated_query: Tensor
    rotated_key: Tensor
    value: Tensor

    def segments(self, tokens: int) -> "list[Features]":
        """Return those of segments of so many tokens."""
        return [Features(*each) for each in zip(*self.change(lambda each: each.split(tokens, dim=-2)), strict=True)]

    def change(self, change: Callable[[Tensor], Any]) -> "Features":
        """Apply the same change to all; unrotated features stay one tensor."""
        plain = rotated = (change(self.query), change(self.key))
        if self.rotated_query is not self.query:
            rotated = (change(self.rotated_query), change(self.rotated_key))
        return Features(*plain, *rotated, change(self.value))


def elu_features(heads: Tensor) -> Tensor:
    """Map to elu(x) + 1, which is positive everywhere.

    Source: Katharopoulos et al. 2020, Transformers are RNNs, §3.2.1, eq. 7, https://arxiv.org/abs/2006.16236
    Shapes: (..., K) -> (..., K)
    """
    return F.elu(heads).add_(1)


def relu_features(heads: Tensor) -> Tensor:
    """Map to max(x, 0); a query without a component in common with any key reads zeros.

    Source: Qin et al. 2022, cosFormer, §3.1, eq. 7, https://arxiv.org/abs/2202.08791
    Shapes: (..., K) -> (..., K)
    """
    return F.relu(heads)


FEATURE_MAPS: dict[str, Callable[[Tensor], Tensor]] = {"elu": elu_features, "relu": relu_features}


def map_features(config: StackConfig, heads: Tensor, mask: TokenMask | None = None) -> Tensor:
    """Map queries or keys to features; zero at padding: (B, H, T, K) -> same."""
    features = FEATURE_MAPS[config.feature_map](heads.to(torch.promote_types(heads.dtype, torch.float32)))
    padding = None if mask is None else mask.padding
    return features if padding is None else features * padding[:, None, :, None]


def group_features(query: Tensor, key: Tensor, value: Tensor, rotation: Rotation | None = None) -> Features:
    """Rotate features, and let the queries (B, H, T, K) that share keys (B, G, S, K) stand side by side."""
    groups = (key.shape[1], query.shape[1] // key.shape[1])
    plain = rotated = (query.unflatten(1, groups), key.unsqueeze(2))
    if rotation is not None:
        turned = apply_rotation(query, key, rotation)
        rotated = (turned[0].unflatten(1, groups), turned[1].unsqueeze(2))
    return Features(*plain, *rotated, value.to(query.dtype).unsqueeze(2))


def divide(sums: Tensor, normaliser: Tensor) -> Tensor:
    """Normalise sums of values, zero where nothing was read: (B, G, H / G, T, K), (..., 1) -> (B, T, H, K)."""
    mixed = sums / torch.where(normaliser > 0, normaliser, 1)
    return mixed.flatten(1, 2).transpose(1, 2)


def read_state(query: Tensor, rotated_query: Tensor, state: State) -> Tensor:
    """Let queries (B, G, H / G, T, K) read a state, all of it: -> (B, T, H, K)."""
    sums, keys = (part.unsqueeze(2) for part in state)
    return divide(rotated_query @ sums, query @ keys.unsqueeze(-1))


def linear_state(rotated_key: Tensor, key: Tensor, value: Tensor) -> State:
    """Sum tokens to a state: 3 x (B, G, S, K) -> (B, G, K, K), (B, G, K)."""
    return rotated_key.transpose(-1, -2) @ value, key.sum(-2)


def causal_linear(
    features: Features, documents: Tensor | None = None, state: State | None = None
) -> tuple[Tensor, State]:
    """Mix the values of tokens up to each query, after a state: -> (B, T, H, K), and the state after the last.

    Source: Katharopoulos et al. 2020, §3.3, eq. 9 and 18 to 20, https://arxiv.org/abs/2006.16236
    """
    if documents is not None:
        return causal_segment(features, documents, state)
    parts = []
    for segment in features.segments(segment_tokens(features.query)):
        mixed, state = causal_segment(segment, None, state)
        parts.append(mixed)
    assert state is not None  # a sequence has a token
    return torch.cat(parts, dim=1) if len(parts) > 1 else parts[0], state


def causal_segment(features: Features, documents: Tensor | None, state: State | None) -> tuple[Tensor, State]:
    """Mix values as `causal_linear` does, all chunks at once."""
    sums, keys = (None, None) if state is None else (state[0].unsqueeze(2), state[1][:, :, None, :, None])
    mixed, normaliser, sums, keys = sum_features(features, documents, sums, keys)
    return divide(mixed, normaliser), (sums.squeeze(2), keys[:, :, 0, :, 0])


def sum_features(
    features: Features, documents: Tensor | None, sums: Tensor | None = None, keys: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sum values and normalisers up to each query, after a state; return both, and the state at the end."""
    query, key, rotated_query, rotated_key, value = features
    chunks = rotated = Chunks.of(query, key, documents)
    scores = rotated_scores = chunks.scores()
    if rotated_query is not query:
        rotated = Chunks.of(rotated_query, rotated_key, documents)
        rotated_scores = rotated.scores()
    mixed, sums = causal_sums(rotated, rotated_scores, value, sums)
    normaliser, keys = causal_products(chunks, scores, keys)
    return mixed, normaliser, sums, keys


def bidirectional_linear(features: Features, documents: Tensor | None = None) -> Tensor:
    """Mix the values of all tokens, or of those of each query's document: -> (B, T, H, K).

    Within documents that is what is read from the left, and from the right, where the token itself counts twice.

    Source: Katharopoulos et al. 2020, §3.2, eq. 5 and 6, https://arxiv.org/abs/2006.16236
    """
    query, key, rotated_query, rotated_key, value = features
    if documents is None:
        return read_state(query, rotated_query, linear_state(*(part.squeeze(2) for part in (rotated_key, key, value))))
    left, left_products, *_ = sum_features(features, documents)
    backwards = features.change(lambda each: each.flip(-2))
    right, right_products, *_ = sum_features(backwards, documents.flip(-1))
    own = (rotated_query * rotated_key).sum(-1, keepdim=True)
    own_product = (query * key).sum(-1, keepdim=True)
    return divide(left + right.flip(-2) - own * value, left_products + right_products.flip(-2) - own_product)


def linear_weights(features: Features, mask: TokenMask | None, *, causal: bool = False) -> Tensor:
    """Return the weights that linear attention never needs, pair by pair: (B, H, T, S).

    Source: Katharopoulos et al. 2020, §3.2, eq. 4, https://arxiv.org/abs/2006.16236; rotated: Su et al. 2021, RoFormer,
        §3.3, eq. 19, https://arxiv.org/abs/2104.09864
    """
    query, key, rotated_query, rotated_key, _ = features
    seen = torch.ones(query.shape[-2], key.shape[-2], device=query.device, dtype=query.dtype)
    seen = seen.tril() if causal else seen
    if mask is not None and mask.documents is not None:
        seen = seen * (mask.documents[:, None, None, :, None] == mask.documents[:, None, None, None])
    normaliser = (query @ key.transpose(-1, -2) * seen).sum(-1, keepdim=True)
    scores = rotated_query @ rotated_key.transpose(-1, -2) * seen
    return (scores / torch.where(normaliser > 0, normaliser, 1)).flatten(1, 2)


class LinearSelfAttention(SelfAttention):
    """Read from the same sequence by features of queries and keys; a cache holds one state for all earlier tokens.

    A rotation turns the features in the sums of values and not in the normaliser, which stays positive.

    Source: Katharopoulos et al. 2020, Transformers are RNNs, §3.2 and §3.4, https://arxiv.org/abs/2006.16236; rotated:
        Su et al. 2021, RoFormer, §3.3, eq. 19, https://arxiv.org/abs/2104.09864
    Shapes: (B, T, D) -> (B, T, D) and weights (B, H, T, S) or None
    """

    def forward(self, hidden: Tensor, context: LayerContext = NO_CONTEXT) -> tuple[Tensor, Tensor | None]:
        mask, position, cache = cast("TokenMask | None", context.mask), context.position, context.cache
        placed = add_position(hidden, position.query_key)
        query, key = self.query(context.select(placed)), self.key(placed)
        value = self.value(hidden)
        with torch.autocast(hidden.device.type, enabled=False):
            mapped = map_features(self.config, query), map_features(self.config, key, mask)
            features = group_features(*mapped, value, position.rotation)
            mixed = self.mix(features, mask, cache)
            weights = self.weights(features, mask, cache) if context.weights else None
        return self.output(join_heads(mixed.to(hidden.dtype), query), context.select(hidden)), weights

    def mix(self, features: Features, mask: TokenMask | None, past_key_values: Cache | None) -> Tensor:
        """Mix values, and store the state after them: -> (B, T, H, K)."""
        documents = None if mask is None else mask.documents
        if not self.is_causal:
            return bidirectional_linear(features, documents)
        layer = state_layer(past_key_values, self.layer_idx)
        mixed, state = causal_linear(features, documents, layer.state if layer else None)
        if layer is not None:
            layer.store(state, features.key.shape[-2])
        return mixed

    def weights(self, features: Features, mask: TokenMask | None, past_key_values: Cache | None) -> Tensor:
        """Return attention weights: (B, H, T, S); those of forgotten keys are unknown."""
        layer = state_layer(past_key_values, self.layer_idx)
        if layer is not None and layer.length > features.key.shape[-2]:
            raise ValueError(
                "output_attentions=True asks for weights of tokens that the state of kernel='linear' no longer holds "
                "one by one; set use_cache=False"
            )
        return linear_weights(features, mask, causal=self.is_causal)


class LinearCrossAttention(CrossAttention):
    """Read from an encoder's output by features of queries and keys; its sums are computed once and then cached.

    Source: Katharopoulos et al. 2020, Transformers are RNNs, §3.2, https://arxiv.org/abs/2006.16236
    Shapes: (B, T, D), memory (B, S, D) -> (B, T, D) and weights (B, H, T, S) or None
    """

    def forward(self, hidden: Tensor, context: LayerContext) -> tuple[Tensor, Tensor | None]:
        position, memory, key_value = context.position, cast(Tensor, context.memory.hidden), None
        cache = context.cache.cross_attention_cache if isinstance(context.cache, EncoderDecoderCache) else None
        layer = state_layer(cache, self.layer_idx)
        query = self.query(add_position(hidden, position.query_key))
        if context.weights or layer is None or layer.state is None:
            key_value = self.key(add_position(memory, position.memory_key)), self.value(memory)
        with torch.autocast(hidden.device.type, enabled=False):
            mixed, weights = self.mix(query, key_value, layer, context)
        return self.output(join_heads(mixed.to(hidden.dtype), query), hidden), weights

    def mix(
        self, query: Tensor, key_value: tuple[Tensor, Tensor] | None, layer: StateLayer | None, context: LayerContext
    ) -> tuple[Tensor, Tensor | None]:
        """Let queries read the sums over memory, those in the cache where it has some: -> (B, T, H, K) and weights."""
        mapped, weights = map_features(self.config, query), None
        state = None if layer is None else layer.state
        if key_value is not None:
            mask = cast("TokenMask | None", context.memory.mask)
            features = group_features(mapped, map_features(self.config, key_value[0], mask), key_value[1])
            weights = linear_weights(features, mask) if context.weights else None
            key, value = features.key.squeeze(2), features.value.squeeze(2)
            state = state or linear_state(key, key, value)
        assert state is not None  # without one, keys and values were projected
        if layer is not None and layer.state is None:
            layer.store(state, cast(Tensor, context.memory.hidden).shape[1])
            cast(EncoderDecoderCache, context.cache).is_updated[self.layer_idx] = True
        grouped = mapped.unflatten(1, (state[0].shape[1], -1))
        return read_state(grouped, grouped, state), weights
