"""Attention of patterns that see few keys: chunks of queries, each with the keys that any of it may see.

Time and memory grow with the length and not with its square. A mask is still a mask: what a chunk does not see is not
computed, and in what it does see the pattern decides, so that the numbers are those of the dense mask.

Shapes: B batch, T queries, S keys, H heads, G key-value heads, K head_dim; R rows of masks, 1 where all of a batch are
alike, N chunks, C queries in a chunk, W keys of a chunk, E those of them that lie apart, M queries that see all keys.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ...configuration.configuration_stack import StackConfig
from ..checks.inputs import can_read_values
from ..position.token_layout import MaskSizes, TokenLayout

# Queries in a chunk, and the share of all pairs from which on dense attention is as fast.
QUERIES, SHARE = 64, 0.5


class TokenRange(NamedTuple):
    """Places in a row: `queries` of them from `query` on, which attend to `keys` from `key` on."""

    query: int
    queries: int
    key: int
    keys: int

    @classmethod
    def of(cls, sizes: MaskSizes, layer: int) -> "TokenRange":
        """Return the queries of a forward and the keys that a layer holds."""
        keys, first = sizes.keys(layer)
        return cls(int(sizes.past), sizes.length, first, keys)


@dataclass
class WindowMask:
    """The masks added to the scores of chunks (R, N, C, W): minus infinity where a query does not see a key, else 0.

    The keys of a chunk are those `apart` (R, E), counted among all keys, and then all from `left` before its first
    query on. `rows` (R, M) see all keys, -1 where a row has fewer, by `row_masks` (R, 1, M, S), which `rows_of` makes.
    `queries` (1, N, C) and `keys` (R, N, W) are places.
    """

    chunks: Tensor
    span: TokenRange
    left: int
    apart: Tensor
    rows: Tensor
    row_masks: Tensor
    rows_of: Callable[[Tensor], Tensor]
    queries: Tensor
    keys: Tensor

    def compared(self, positions: Tensor, key_positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the positions (B or R or 1) * (N or 1) of the queries (C) and keys (W) of chunks.

        Relative encodings add the same to all chunks where positions follow each other and no key lies apart.
        """
        if not self.apart.numel() and bool((key_positions.diff() == 1).all()) and bool((positions.diff() == 1).all()):
            first = self.queries.new_tensor([[self.left]]).long()
            near = torch.arange(self.keys.shape[-1])[None]
            return first + torch.arange(self.queries.shape[-1]), near
        rows = max(len(positions), len(key_positions), len(self.keys))
        keys = self.keys.expand(rows, -1, -1).long()
        near = key_positions.expand(rows, -1).gather(1, keys.flatten(1)).view_as(keys)
        own = positions[:, (self.queries[0] - self.span.query).long()].expand(rows, -1, -1)
        return own.flatten(0, 1), near.flatten(0, 1)

    def compared_rows(self, positions: Tensor, key_positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the positions of the queries that see all keys (B or R, M) and of the keys (B or 1, S)."""
        rows = max(len(positions), len(self.rows))
        own = positions.expand(rows, -1).gather(1, (self.rows - self.span.query).clamp(min=0).expand(rows, -1))
        return own, key_positions[:, self.span.key : self.span.key + self.span.keys]


def reach_of(config: Any, pattern: str) -> tuple[int, int] | None:
    """Return how far a pattern reaches to either side, and how many first tokens see all; None where any token may."""
    if pattern == "sliding":
        return config.sliding_window - 1, 0
    if pattern == "block_sparse":
        return 2 * config.block_size - 1, config.block_size
    if pattern == "row":
        return config.grid_columns, config.text_length
    if pattern == "convolutional":
        return (config.grid_columns + 1) * (config.grid_kernel // 2), config.text_length
    return None


def can_use_windows(config: StackConfig, hidden: Tensor, sizes: MaskSizes, layout: TokenLayout) -> bool:
    """Return True where keys are as many as tokens and the real ones of a row follow each other."""
    if sizes.length == 1 or not can_read_values(hidden):
        return False
    if not isinstance(sizes.past, int) or sizes.total != sizes.past + sizes.length:
        return False
    padding = layout.padding
    if padding is None:
        return True
    starts = (padding[:, 1:] & ~padding[:, :-1]).sum(-1) + padding[:, 0]
    return bool((starts <= 1).all())


def places_of(chosen: Tensor | None, first: int, count: int) -> Tensor:
    """Return the places of chosen tokens (R, S) among `count` from `first` on, -1 where a row has fewer: (R, M)."""
    if chosen is None:
        return torch.zeros(1, 0, dtype=torch.long)
    chosen = chosen[:, first : first + count]
    most = int(chosen.sum(-1).max())
    places = chosen.int().argsort(dim=-1, descending=True, stable=True)[:, :most]
    return torch.where(chosen.gather(1, places), places + first, -1)


def is_sparse(config: StackConfig, pattern: str, span: TokenRange, apart: int = 0) -> bool:
    """Return True where chunks compute fewer pairs than dense attention."""
    reaches = reach_of(config, pattern)
    if reaches is None:
        return False
    width = reaches[0] * (1 if config.causal else 2) + QUERIES + apart
    rows = 0 if config.causal else apart
    pairs = -(-span.queries // QUERIES) * QUERIES * width + rows * span.keys
    return pairs <= SHARE * span.queries * span.keys


def window_mask(
    config: StackConfig, pattern: str, predicate: Callable[..., Any], layout: TokenLayout, span: TokenRange
) -> WindowMask | None:
    """Build the masks of chunks; None where dense attention is as fast.

    `predicate` tells for row, head, query and key of the batch whether they may attend.
    """
    reach, first = reach_of(config, pattern) or (0, 0)
    seen_by_all = first_tokens(layout, first)
    apart = places_of(seen_by_all, span.key, span.keys)
    if not is_sparse(config, pattern, span, apart.shape[1]):
        return None
    # In a causal stack the first tokens see nothing but each other.
    rows = places_of(None if config.causal else seen_by_all, span.query, span.queries)
    queries = torch.arange(-(-span.queries // QUERIES) * QUERIES, dtype=torch.int32) + span.query
    width = reach + QUERIES + (0 if config.causal else reach)
    keys, once = chunk_keys(queries[::QUERIES, None] - reach, width, apart, span)
    queries = queries.clamp(max=span.query + span.queries - 1).view(1, -1, QUERIES)
    seen = visible(predicate, layout, queries, keys) & once[:, :, None]
    # Padding sees all, for nobody reads it and softmax needs something.
    seen |= ~seen.any(-1, keepdim=True)

    def rows_of(wanted: Tensor) -> Tensor:
        return visible(predicate, layout, wanted[:, None], torch.arange(span.key, span.key + span.keys)[None, None])

    chunks = torch.zeros(seen.shape).masked_fill_(~seen, -torch.inf)
    apart = (apart - span.key).clamp(min=0)
    return WindowMask(chunks, span, reach, apart, rows, rows_of(rows.clamp(min=0)), rows_of, queries, keys)


def first_tokens(layout: TokenLayout, count: int) -> Tensor | None:
    """Return which tokens are the first of their document (R, S); None for none."""
    if not count:
        return None
    first = layout.tokens < count
    return first if layout.padding is None else first & layout.padding


def chunk_keys(starts: Tensor, width: int, apart: Tensor, span: TokenRange) -> tuple[Tensor, Tensor]:
    """Return the places of the keys of chunks (R, N, W), and where each is one that was not there before.

    Shapes: starts (N, 1) of the keys that lie together, apart (R, E)
    """
    near = starts + torch.arange(width, dtype=torch.int32)
    apart = apart.int()[:, None].expand(-1, len(near), -1)
    alone = (apart >= 0) & ((apart < starts) | (apart >= starts + width))
    inside = ((near >= span.key) & (near < span.key + span.keys)).expand(len(apart), -1, -1)
    keys = torch.cat((apart, near.expand_as(inside)), dim=-1).clamp(span.key, span.key + span.keys - 1)
    return keys, torch.cat((alone, inside), dim=-1)


def visible(predicate: Callable[..., Any], layout: TokenLayout, queries: Tensor, keys: Tensor) -> Tensor:
    """Return which keys are seen: places (R or 1, N, C) and (R or 1, N, W) -> (R, N, C, W)."""
    row = torch.arange(len(layout.tokens)).view(-1, 1, 1, 1)
    seen: Tensor = predicate(row, row, queries[..., None], keys[:, :, None])
    if layout.padding is not None:
        real = layout.padding.gather(1, keys.long().flatten(1).expand(len(row), -1))
        seen = seen & real.view(len(row), *keys.shape[1:])[:, :, None]
    return seen


def attend_in_windows(attend: object, module: object, *heads: Tensor, mask: WindowMask, **kwargs: Any) -> Tensor:
    """Attend in chunks, row by row: (B, H, T, K), 2 x (B, G, S, K), bias (B * N or N or 1, H, C, W) -> (B, T, H, K)."""
    count = heads[0].shape[1]
    # In memory tokens come before heads, and chunks of them are views.
    rows = [repeat_heads(each, count // each.shape[1]).transpose(1, 2).unbind() for each in heads]
    mixed = [attend_in_chunks(row, mask, index, kwargs) for index, row in enumerate(zip(*rows, strict=True))]
    return torch.stack(mixed) if len(mixed) > 1 else mixed[0][None]


def repeat_heads(heads: Tensor, groups: int) -> Tensor:
    """Give each query head its own key-value head: (B, G, S, K) -> (B, H, S, K)."""
    return heads if groups == 1 else heads.repeat_interleave(groups, dim=1)


def of_row(values: Tensor, row: int) -> Tensor:
    """Return what belongs to a row, or to all of them."""
    return values[row if len(values) > 1 else 0]


def attend_in_chunks(heads: tuple[Tensor, ...], mask: WindowMask, row: int, kwargs: dict[str, Any]) -> Tensor:
    """Attend in the chunks of one row: (T, H, K), 2 x (S, H, K) -> (T, H, K)."""
    query, key, value = heads
    added, bias = of_row(mask.chunks, row)[:, None], kwargs.get("position_bias")
    chunks, _, size, _ = added.shape
    if bias is not None:
        added = added + (bias if len(bias) == 1 else of_row(bias.unflatten(0, (-1, chunks)), row))
    missing = chunks * size - len(query)
    queries = F.pad(query, (0, 0, 0, 0, 0, missing)) if missing else query
    queries = queries.unflatten(0, (chunks, size)).transpose(1, 2)
    near = [windows_of(each, mask, row) for each in (key, value)]
    mixed = attend_plainly(queries, near[0], near[1], added, kwargs).transpose(1, 2).flatten(0, 1)[: len(query)]
    rows = of_row(mask.rows, row)
    rows = rows[rows >= 0]
    if not len(rows):
        return mixed
    seen, bias, index = of_row(mask.row_masks, row)[:, : len(rows)], kwargs.get("rows_bias"), rows - mask.span.query
    if bias is not None:
        seen = torch.where(seen, of_row(bias, row)[:, : len(rows)], -torch.inf)
    whole = [each.transpose(0, 1)[None] for each in (query[index], key, value)]
    dense = attend_plainly(whole[0], whole[1], whole[2], seen[None], kwargs)
    return mixed.index_copy(0, index, dense[0].transpose(0, 1))


def attend_plainly(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, kwargs: dict[str, Any]) -> Tensor:
    """Call torch's attention, to which keys may be views that share memory."""
    mask = mask if mask.dtype == torch.bool else mask.to(query.dtype)
    dropout = kwargs.get("dropout", 0.0)
    return F.scaled_dot_product_attention(query, key, value, mask, dropout_p=dropout, scale=kwargs["scaling"])


def windows_of(heads: Tensor, mask: WindowMask, row: int) -> Tensor:
    """Return the keys or values of each chunk, a view where none lie apart: (S, H, K) -> (N, H, W, K)."""
    chunks, size, apart = mask.chunks.shape[1], mask.chunks.shape[2], of_row(mask.apart, row)
    width = mask.chunks.shape[3] - len(apart)
    before = mask.left - (mask.span.query - mask.span.key)
    after = (chunks - 1) * size + width - before - len(heads)
    near = F.pad(heads, (0, 0, 0, 0, before, after)).unfold(0, width, size).transpose(2, 3)
    if not len(apart):
        return near
    return torch.cat((heads.index_select(0, apart).transpose(0, 1).expand(chunks, -1, -1, -1), near), dim=2)
