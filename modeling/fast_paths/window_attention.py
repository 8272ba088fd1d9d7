"""Attention in chunks of queries: the numbers of the dense mask, without the pairs that it hides.

Shapes: B batch, T queries, S keys, H heads, G key-value heads, K head_dim; N chunks, C queries in a chunk, W keys of a
chunk, E those of them that lie apart.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..checks.inputs import can_read_values
from ..masks.masking import SparseMask
from ..position.token_layout import MaskSizes

# Numbers of keys that are copied at a time: they stay in a cache, and new ones take their place in memory.
COPIED = 2**20


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
class WindowMask(SparseMask):
    """The masks added to the scores of chunks (R, N, C, W): minus infinity where a query does not see a key, else 0.

    A chunk has every `step`-th token, and the chunks of the first query's class come before others. The keys of a chunk
    are those `apart` (R, 1 or N, E), counted among all keys, and then all of its class from `left` before its
    first query on. `rows` (R, M) see all keys, -1 where a row has fewer, by `row_masks` (R, 1, M, S), or (B, H, M, S)
    with a bias; `rows_of` and `bias_of` make those of any rows. `queries` (1, N, C) and `keys` (R, N, W) are places.
    """

    chunks: Tensor
    span: TokenRange
    step: int
    left: int
    apart: Tensor
    rows: Tensor
    row_masks: Tensor
    rows_of: Callable[[Tensor], Tensor]
    queries: Tensor
    keys: Tensor
    bias_of: Callable[[Tensor], Tensor | None] | None = None

    def attend(self, function: object, module: object, *heads: Any, **options: Any) -> tuple[Tensor, None]:
        """Attend in chunks: (B, H, T, K), 2 x (B, G, S, K) -> (B, T, H, K)."""
        scores = Scores(options["scaling"], options.get("dropout", 0.0), options.get("position_bias"))
        return attend_in_windows(heads[:3], self, scores), None

    def compared(self, positions: Tensor, key_positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the positions (B or R or 1) * (N or 1) of the queries (C) and keys (W) of chunks.

        Relative encodings add the same to all chunks where positions follow each other and no key lies apart.
        """
        even = can_read_values(positions) and not self.apart.numel()
        if even and bool((key_positions.diff() == 1).all()) and bool((positions.diff() == 1).all()):
            first = self.queries.new_tensor([[self.left]]).long()
            near = torch.arange(self.keys.shape[-1])[None]
            return self.step * (first + torch.arange(self.queries.shape[-1])), self.step * near
        rows = max(len(positions), len(key_positions), len(self.keys))
        keys = self.keys.expand(rows, -1, -1).long()
        near = key_positions.expand(rows, -1).gather(1, keys.flatten(1)).view_as(keys)
        own = positions[:, (self.queries[0] - self.span.query).long()].expand(rows, -1, -1)
        return own.flatten(0, 1), near.flatten(0, 1)

    def compared_rows(self, rows: Tensor, positions: Tensor, key_positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the positions of the queries at `rows` (R, M), -1 for none, and of all keys (B or 1, S)."""
        count = max(len(positions), len(rows))
        own = positions.expand(count, -1).gather(1, (rows - self.span.query).clamp(min=0).expand(count, -1))
        return own, key_positions[:, self.span.key : self.span.key + self.span.keys]


class Scores(NamedTuple):
    """The scale, dropout and bias of attention scores."""

    scaling: float
    dropout: float
    bias: Tensor | None


def attend_in_windows(heads: tuple[Tensor, ...], mask: WindowMask, scores: Scores) -> Tensor:
    """Attend in chunks, row by row: (B, H, T, K), 2 x (B, G, S, K), bias (B * N or N or 1, H, C, W) -> (B, T, H, K)."""
    groups = heads[0].shape[1] // heads[1].shape[1]
    if groups > 1:
        heads = (heads[0], *(each.repeat_interleave(groups, dim=1) for each in heads[1:]))
    heads = tuple(each.transpose(1, 2) for each in heads)
    if torch.compiler.is_compiling():
        return attend_together(heads, mask, scores)
    # In memory tokens come before heads, and chunks of them are views.
    rows = [each.unbind() for each in heads]
    mixed = [attend_in_row(row, mask, index, scores) for index, row in enumerate(zip(*rows, strict=True))]
    return torch.stack(mixed) if len(mixed) > 1 else mixed[0][None]


def attend_together(heads: tuple[Tensor, ...], mask: WindowMask, scores: Scores) -> Tensor:
    """Attend in all rows at once, by a graph of any batch: their mask is one, and no query sees all keys.

    Shapes: (B, T, H, K), 2 x (B, S, H, K), bias (B * N or N or 1, H, C, W) -> (B, T, H, K)
    """
    (batch, _, count, _), bias = heads[0].shape, scores.bias
    if bias is not None:
        rows = bias[None] if len(bias) == 1 else bias.unflatten(0, (-1, mask.chunks.shape[1]))
        scores = scores._replace(bias=rows.expand(batch, -1, -1, -1, -1).transpose(0, 1).flatten(1, 2))
    together = tuple(each.transpose(0, 1).flatten(1, 2) for each in heads)
    return attend_in_chunks(together, mask, 0, scores).unflatten(1, (batch, count)).transpose(0, 1)


def of_row(values: Tensor, row: int) -> Tensor:
    """Return the part of a row, or the one of all rows."""
    return values[row if len(values) > 1 else 0]


def attend_in_row(heads: tuple[Tensor, ...], mask: WindowMask, row: int, scores: Scores) -> Tensor:
    """Attend in the chunks of one row, and in whole for the queries that see all: (T, H, K), 2 x (S, H, K) -> same."""
    mixed = attend_in_chunks(heads, mask, row, scores)
    rows = of_row(mask.rows, row)
    rows = rows[rows >= 0]
    if not len(rows):
        return mixed
    seen, index = of_row(mask.row_masks, row)[:, : len(rows)], rows - mask.span.query
    query, key, value = (each.transpose(0, 1)[None] for each in (heads[0][index], *heads[1:]))
    dense = attend_plainly(query, key, value, seen[None], scores)
    return mixed.index_copy(0, index, dense[0].transpose(0, 1))


def attend_in_chunks(heads: tuple[Tensor, ...], mask: WindowMask, row: int, scores: Scores) -> Tensor:
    """Attend in the chunks of one row, one class of tokens after the other: (T, H, K), 2 x (S, H, K) -> (T, H, K)."""
    query, step = heads[0], mask.step
    added, bias = of_row(mask.chunks, row)[:, None], scores.bias
    chunks, _, size, _ = added.shape
    if bias is not None:
        added = added + (bias if len(bias) == 1 else of_row(bias.unflatten(0, (-1, chunks)), row))
    missing = chunks * size - len(query)
    uneven = torch.compiler.is_compiling() or missing  # always pad, to avoid a recompile
    queries = F.pad(query, (0, 0, 0, 0, 0, missing)) if uneven else query
    # Keys of so many chunks are copied at a time, of all where views do.
    some = max(COPIED // (mask.chunks.shape[-1] * heads[1][0].numel()), 1) if mask.apart.numel() else chunks
    mixed = []
    for start, own in enumerate(added.chunk(step)):
        chosen = queries[start::step].unflatten(0, (-1, size)).transpose(1, 2)
        keys, values = (windows_of(each, mask, row, start, some) for each in heads[1:])
        parts = zip(chosen.split(some), keys, values, own.split(some), strict=True)
        together = torch.cat([attend_plainly(*part, scores) for part in parts])
        mixed.append(together.transpose(1, 2).flatten(0, 1))
    together = mixed[0] if step == 1 else torch.stack(mixed, dim=1).flatten(0, 1)
    return together[: len(query)]


def attend_plainly(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scores: Scores) -> Tensor:
    """Call torch's attention, to which keys may be views that share memory."""
    mask = mask if mask.dtype == torch.bool else mask.to(query.dtype)
    return F.scaled_dot_product_attention(query, key, value, mask, scores.dropout, scale=scores.scaling)


def windows_of(heads: Tensor, mask: WindowMask, row: int, start: int, some: int) -> Iterator[Tensor]:
    """Yield the keys or values of `some` chunks of a class, views where none lie apart: (S, H, K) -> (n, H, W, K).

    The class is that of the `start`-th query.
    """
    chunks, size, apart = mask.chunks.shape[1] // mask.step, mask.chunks.shape[2], of_row(mask.apart, row)
    width = mask.chunks.shape[3] - apart.shape[-1]
    place, first = divmod(mask.span.query - mask.span.key + start, mask.step)
    own = heads[first :: mask.step]
    before = mask.left - place
    after = (chunks - 1) * size + width - before - len(own)
    near = F.pad(own, (0, 0, 0, 0, before, after)).unfold(0, width, size).permute(0, 3, 1, 2)
    if not apart.numel():
        yield from near.transpose(1, 2).split(some)
        return
    apart = apart if len(apart) == 1 else apart[start * chunks : (start + 1) * chunks]
    far = heads.index_select(0, apart.flatten()).unflatten(0, apart.shape).expand(chunks, -1, -1, -1)
    for part in zip(far.split(some), near.split(some), strict=True):
        # In this order the keys of a chunk are one piece of memory.
        yield torch.cat(part, dim=1).transpose(1, 2)
