"""Rows of attention weights, computed again from queries and keys for some heads and queries.

Shapes: B batch, T queries, S keys, H heads, G key-value heads, K head_dim; h heads and q queries asked
for; documents packed in a row have their own T and S.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

# Scores that are computed at a time, so that they stay in a processor's cache.
SCORES = 2**20


@dataclass(frozen=True)
class AttentionCall:
    """The inputs of an attention function: (B, H, T, K), 2 x (B, G, S, K), its mask and all that changes scores.

    With `is_causal`, no mask means that a query sees the keys up to its own place.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Any
    scaling: float
    is_causal: bool
    position_bias: Tensor | None = None
    softcap: float | None = None
    sinks: Tensor | None = None

    @classmethod
    def of(cls, module: nn.Module, *given: Any, backend: str, **options: Any) -> Self:
        """Read the arguments with which transformers calls an attention function."""
        query, key, value, mask = (*given, options.pop("attention_mask", None))[:4]
        causal = options.get("is_causal")
        causal = getattr(module, "is_causal", True) if causal is None else causal
        scaling = options.get("scaling")
        return cls(
            query.detach(),
            key.detach(),
            value.detach(),
            mask,
            query.shape[-1] ** -0.5 if scaling is None else scaling,
            bool(causal) and backend != "eager" and query.shape[2] > 1,
            *(options.get(name) for name in ("position_bias", "softcap", "s_aux")),
        )

    def keys_of(self, heads: Tensor, states: Tensor) -> Tensor:
        """Return the keys or values that some heads read: (B, G, S, K) -> (B, h, S, K)."""
        return states.index_select(1, heads // (self.query.shape[1] // states.shape[1]))

    def bias_rows(self, heads: Tensor, places: Tensor) -> Tensor | None:
        """Return the bias of the scores of some rows: (B or 1, h or 1, q or 1, S)."""
        return None if self.position_bias is None else self.rows_of(self.position_bias, heads, places)

    def rows_of(self, pairs: Tensor, heads: Tensor, places: Tensor) -> Tensor:
        """Select heads and rows of a tensor over pairs; a dimension of 1 stays: (B, H, T, S) -> (B, h, q, S)."""
        pairs = pairs if pairs.shape[1] == 1 else pairs.index_select(1, heads)
        pairs = pairs if pairs.shape[2] == 1 else pairs.index_select(2, places)
        return pairs[..., : self.key.shape[2]]

    def visible_keys(self, heads: Tensor, places: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return which keys some queries see, None for all, and what the mask adds to scores: (B, h or 1, q, S)."""
        keys = torch.arange(self.key.shape[2], device=places.device)
        if self.mask is None:
            return (keys[None] <= places[:, None] if self.is_causal else None), None
        if hasattr(self.mask, "mask_mod"):  # flex attention's block mask
            index = torch.arange(len(self.query), device=places.device), heads, places, keys
            shaped = (each.view([-1 if axis == own else 1 for own in range(4)]) for axis, each in enumerate(index))
            return self.mask.mask_mod(*shaped), None
        mask = self.rows_of(self.mask, heads, places)
        if mask.dtype == torch.bool:
            return mask, None
        # A finished mask may add numbers beside those that hide: the least number, or minus infinity.
        seen = mask > torch.finfo(mask.dtype).min / 2
        return seen, torch.where(seen, mask, 0)


class Part(NamedTuple):
    """A part of a call inside of which queries read keys: all of it, or one of the documents packed in a row.

    `own` are the places in the part of the queries asked for, and `queries` the part's place in the row that the
    forward computes. Their weights go to `rows` of those asked for, at `columns`, in the row `batch` of the caller's
    batch; None where the part has all rows.
    """

    call: AttentionCall
    own: Tensor
    queries: slice
    batch: int | None
    rows: Tensor
    columns: Tensor


class Layout(NamedTuple):
    """The parts of a call, and the shape (B, q, S) of its rows as the caller gave the batch."""

    parts: list[Part]
    shape: tuple[int, int, int]

    @classmethod
    def of(cls, call: AttentionCall, queries: Tensor) -> "Layout":
        """Return the layout of a call that is one part."""
        columns = torch.arange(call.key.shape[2], device=call.key.device)
        part = Part(call, queries, slice(None), None, torch.arange(len(queries), device=queries.device), columns)
        return cls([part], (len(call.query), len(queries), len(columns)))

    def assemble(self, compute: Callable[[Part], Tensor], missing: float = 0.0) -> Tensor:
        """Compute each part (B or 1, h, q, S) and put it where the caller has it: (B, h, q, S)."""
        computed = [compute(part) for part in self.parts]
        if self.parts[0].batch is None:
            return computed[0]
        batch, queries, keys = self.shape
        whole = computed[0].new_full((batch, computed[0].shape[1], queries, keys), missing)
        for part, rows in zip(self.parts, computed, strict=True):
            whole[part.batch, :, part.rows[:, None], part.columns] = rows[0].to(whole.dtype)
        return whole


def attention_scores(call: AttentionCall, heads: Tensor, places: Tensor) -> Tensor:
    """Return the scores before softmax, with biases, minus infinity where a query does not see a key: (B, h, q, S).

    Source: Vaswani et al. 2017, §3.2.1, eq. 1, https://arxiv.org/abs/1706.03762; softcap: Gemma Team 2024, Gemma 2, §2,
        https://arxiv.org/abs/2408.00118
    """
    query = call.query.index_select(1, heads).index_select(2, places)
    scores = query @ call.keys_of(heads, call.key).transpose(-1, -2) * call.scaling
    if call.softcap is not None:
        scores = torch.tanh(scores / call.softcap) * call.softcap
    bias = call.bias_rows(heads, places)
    if bias is not None:
        scores = scores + bias
    seen, added = call.visible_keys(heads, places)
    if added is not None:
        scores = scores + added.to(scores.dtype)
    return scores if seen is None else scores.masked_fill(~seen, -torch.inf)


def attention_weights(call: AttentionCall, heads: Tensor, places: Tensor) -> Tensor:
    """Return rows of attention weights, computed some at a time: (B, h, q, S)."""
    some = max(SCORES // (len(call.query) * len(heads) * call.key.shape[2]), 1)
    weights = call.query.new_empty(len(call.query), len(heads), len(places), call.key.shape[2])
    for start in range(0, len(places), some):
        own = places[start : start + some]
        weights[:, :, start : start + some] = normalise(attention_scores(call, heads, own), heads, call.sinks)
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
