"""Attention of patterns that see only what is near: chunks of queries, each with the keys that any of it may see.

Time and memory grow with the length and not with its square. A mask is still a mask: what a chunk does not see is not
computed, and in what it does see the pattern decides, so that the numbers are those of the dense mask.

Shapes: B batch, T tokens, H heads, G key-value heads, K head_dim, N chunks, C queries in a chunk, W keys of a chunk.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...configuration.axes import BIAS_POSITIONS
from ...configuration.configuration_stack import StackConfig
from ..checks.inputs import can_read_values

# Queries in a chunk, and the share of all pairs from which on dense attention is as fast.
QUERIES, SHARE = 128, 0.5


@dataclass
class WindowMask:
    """The masks (N, 1, C, W) of chunks, whose keys are the `first` ones of all and those `left` and `right` of a chunk.

    `rows` gives the dense mask (1, 1, queries, T) of first queries: those that see all have it.
    """

    chunks: Tensor
    length: int
    first: int
    left: int
    right: int
    rows: Callable[[int], Tensor]


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


def can_use_windows(config: StackConfig, hidden: Tensor, sizes: Any, layout: Any) -> bool:
    """Return True where rows are whole: nothing cached, no padding, one document; and no bias is added to scores."""
    if not can_read_values(hidden) or layout.documents is not None or config.position in BIAS_POSITIONS:
        return False
    fresh = isinstance(sizes.past, int) and not sizes.past and sizes.total == sizes.length
    return fresh and (layout.padding is None or bool(layout.padding.all()))


def window_mask(
    config: StackConfig, pattern: str, length: int, predicate: Callable[..., Any], row: int = 0, start: int = 0
) -> WindowMask | None:
    """Build the masks of chunks for a document that starts at a place of a row; None where dense attention is as fast.

    `predicate` tells for row, head, query and key of the batch whether they may attend.
    """
    reaches = reach_of(config, pattern)
    if reaches is None:
        return None
    reach, first = reaches[0], min(reaches[1], length)
    right = 0 if config.causal else reach
    width = first + reach + QUERIES + right
    if width + first > SHARE * length:
        return None
    at = torch.tensor(row)
    queries = torch.arange(-(-length // QUERIES) * QUERIES, dtype=torch.int32).view(-1, 1, QUERIES, 1)
    near = torch.arange(-reach, QUERIES + right, dtype=torch.int32) + queries[:, :, :1]
    inside = (near >= first) & (near < length)
    firsts = torch.arange(first, dtype=torch.int32).expand(len(queries), 1, 1, -1)
    keys = torch.cat((firsts, near.clamp(0, length - 1)), dim=-1) + start
    seen = predicate(at, at, queries.clamp(max=length - 1) + start, keys)
    seen = seen & F.pad(inside, (first, 0), value=True)

    def rows(wanted: int) -> Tensor:
        places = torch.arange(length) + start
        dense: Tensor = predicate(at, at, places[:wanted, None], places[None])
        return dense[None, None]

    return WindowMask(seen, length, first, reach, right, rows)


def attend_in_windows(
    attend: Callable[..., tuple[Tensor, Tensor | None]], module: Any, *heads: Tensor, mask: WindowMask, **kwargs: Any
) -> Tensor:
    """Call attention for all chunks at once: (B, H, T, K), 2 x (B, G, T, K) -> (B, T, H, K)."""
    query, key, value = heads
    batch, count = query.shape[:2]
    chunks, size = len(mask.chunks), mask.chunks.shape[2]
    end = chunks * size - mask.length
    queries = F.pad(query, (0, 0, 0, end)).unflatten(2, (chunks, size)).permute(2, 0, 1, 3, 4).flatten(1, 2)
    near = [windows_of(each, mask, end) for each in (key, value)]
    mixed, _ = attend(module, queries, *near, mask.chunks, **kwargs)
    mixed = mixed.unflatten(2, (batch, count)).permute(2, 0, 1, 3, 4).flatten(1, 2)[:, : mask.length]
    if not mask.first:
        return mixed
    dense, _ = attend(module, query[:, :, : mask.first], key, value, mask.rows(mask.first), **kwargs)
    return torch.cat((dense, mixed[:, mask.first :]), dim=1)


def windows_of(heads: Tensor, mask: WindowMask, end: int) -> Tensor:
    """Gather the keys or values of each chunk: (B, G, T, K) -> (N, B * G, W, K)."""
    size = mask.chunks.shape[2]
    # The backward of an unfolded tensor is one sum; that of slices would be a tensor of all keys for each.
    padded = F.pad(heads, (0, 0, mask.left, mask.right + end))
    near = padded.unfold(2, mask.left + size + mask.right, size).permute(2, 0, 1, 4, 3).flatten(1, 2)
    if not mask.first:
        return near
    first = heads[:, :, : mask.first].flatten(0, 1).expand(len(near), -1, -1, -1)
    return torch.cat((first, near), dim=2)
