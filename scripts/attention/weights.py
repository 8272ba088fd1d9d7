"""Rows of attention weights, computed again from queries and keys for some heads and queries.

Shapes: B batch, T queries, S keys, H heads, G key-value heads, K head_dim; h heads and q queries asked for.
"""

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

# Scores computed at a time, few enough for a processor's cache.
SCORES = 2**20


@dataclass(frozen=True)
class AttentionCall:
    """The inputs of an attention function that decide its weights: (B, H, T, K), (B, G, S, K), its mask and the rest.

    With `is_causal`, no mask means that a query sees the keys up to its own place.
    """

    query: Tensor
    key: Tensor
    mask: Any
    scaling: float
    is_causal: bool
    bias: Tensor | None = None
    softcap: float | None = None
    sinks: Tensor | None = None

    @classmethod
    def of(cls, backend: str, module: nn.Module, query: Tensor, key: Tensor, mask: Any, **options: Any) -> Self:
        """Read the arguments with which transformers calls an attention function."""
        causal, scaling = options.get("is_causal"), options.get("scaling")
        causal = getattr(module, "is_causal", True) if causal is None else causal
        return cls(
            query.detach(),
            key.detach(),
            mask,
            query.shape[-1] ** -0.5 if scaling is None else scaling,
            bool(causal) and backend != "eager" and query.shape[2] > 1,
            *(options.get(name) for name in ("position_bias", "softcap", "s_aux")),
        )


def select(pairs: Tensor, heads: Tensor, places: Tensor, keys: int) -> Tensor:
    """Select heads and rows of a tensor over pairs; a dimension of 1 stays: (B, H, T, S) -> (B, h, q, S)."""
    pairs = pairs if pairs.shape[1] == 1 else pairs.index_select(1, heads)
    pairs = pairs if pairs.shape[2] == 1 else pairs.index_select(2, places)
    return pairs[..., :keys]


def visible_keys(call: AttentionCall, heads: Tensor, places: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Return the visible keys of some queries, None for all, and the mask's addition to scores: (B, h or 1, q, S)."""
    count = call.key.shape[2]
    keys = torch.arange(count, device=places.device)
    if call.mask is None:
        return (keys[None] <= places[:, None] if call.is_causal else None), None
    if hasattr(call.mask, "rows_of"):  # windows in chunks
        return call.mask.rows_of(places[None] + call.mask.span.query), None
    if hasattr(call.mask, "mask_mod"):  # flex attention's block mask
        index = torch.arange(len(call.query), device=places.device), heads, places, keys
        shaped = (each.view([-1 if axis == own else 1 for own in range(4)]) for axis, each in enumerate(index))
        return call.mask.mask_mod(*shaped), None
    mask = select(call.mask, heads, places, count)
    if mask.dtype == torch.bool:
        return mask, None
    # An additive mask hides keys by the least number or minus infinity, and may add other numbers.
    seen = mask > torch.finfo(mask.dtype).min / 2
    return seen, torch.where(seen, mask, 0)


def score_bias(call: AttentionCall, heads: Tensor, places: Tensor) -> Tensor | None:
    """Return the bias of the scores of some rows: (B or 1, h or 1, q or 1, S)."""
    if call.bias is None:
        return None
    if hasattr(call.mask, "bias_of"):  # windows in chunks, whose bias is of chunks
        bias: Tensor = call.mask.bias_of(places[None] + call.mask.span.query)
        return bias.index_select(1, heads)
    return select(call.bias, heads, places, call.key.shape[2])


def attention_scores(call: AttentionCall, heads: Tensor, places: Tensor) -> Tensor:
    """Return the scores before softmax, with biases, minus infinity where a query does not see a key: (B, h, q, S).

    Source: Vaswani et al. 2017, §3.2.1, eq. 1, https://arxiv.org/abs/1706.03762; softcap: Gemma Team 2024, Gemma 2, §2,
        https://arxiv.org/abs/2408.00118
    """
    query = call.query.index_select(1, heads).index_select(2, places)
    key = call.key.index_select(1, heads // (call.query.shape[1] // call.key.shape[1]))
    scores = query @ key.transpose(-1, -2) * call.scaling
    if call.softcap is not None:
        scores = torch.tanh(scores / call.softcap) * call.softcap
    bias, (seen, added) = score_bias(call, heads, places), visible_keys(call, heads, places)
    for each in (bias, added):
        scores = scores if each is None else scores + each.to(scores.dtype)
    return scores if seen is None else scores.masked_fill(~seen, -torch.inf)


def attention_weights(call: AttentionCall, heads: Tensor, places: Tensor) -> Tensor:
    """Return rows of attention weights, computed some at a time: (B, h, q, S)."""
    some = max(SCORES // (len(call.query) * len(heads) * call.key.shape[2]), 1)
    weights = call.query.new_empty(len(call.query), len(heads), len(places), call.key.shape[2])
    for start in range(0, len(places), some):
        scores = attention_scores(call, heads, places[start : start + some])
        weights[:, :, start : start + some] = normalise(scores, heads, call.sinks)
    return weights


def normalise(scores: Tensor, heads: Tensor, sinks: Tensor | None) -> Tensor:
    """Apply softmax in single precision at least; a query that sees nothing, as padding, has zeros.

    Source: sinks, scores that no key has: OpenAI 2025, gpt-oss, §2.3, https://arxiv.org/abs/2508.10925
    """
    precise, keys = torch.promote_types(scores.dtype, torch.float32), scores.shape[-1]
    if sinks is not None:
        own = sinks.detach().flatten().index_select(0, heads).view(1, -1, 1, 1).to(scores.dtype)
        scores = torch.cat((scores, own.expand(*scores.shape[:-1], 1)), dim=-1)
    return scores.softmax(-1, dtype=precise).to(scores.dtype)[..., :keys].nan_to_num_(nan=0.0)
