"""Masks of patterns that see few keys: chunks of queries, each with the keys that any of it may see.

`strided`, whose near keys and columns lie apart for each query, keeps the dense mask, as `full` does.

Time and memory grow with the length and not with its square.

Shapes: B batch, T queries, S keys; R rows of masks, 1 where all of a batch are alike, N chunks, C queries in a chunk,
W keys of a chunk, E those of them that lie apart, M queries that see all keys.
"""

from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from ...configuration.axes import DISENTANGLED_POSITIONS
from ...configuration.configuration_stack import StackConfig
from ..checks.inputs import can_read_values
from ..execution import Plan, StackInputs, StackParts
from ..masks.masking import AttentionMasks, Mask, MaskBuilder, Rule, build_mask
from ..masks.pattern import Predicate, is_summary, random_blocks
from ..position.token_layout import MaskSizes, TokenLayout, first_layers
from .window_attention import TokenRange, WindowMask

# Queries in a chunk, and the share of all pairs from which on dense attention is as fast.
QUERIES, SHARE = 64, 0.5
# Where keys lie apart, chunks copy all of theirs: so much longer attention to them takes.
COPYING = 1.25
# Pairs whose masks are made at a time.
PAIRS = 2**17


class Reach(NamedTuple):
    """The reach of a pattern: `near` keys on either side of a query, of which every `step`-th counts.

    The `first` tokens of a document see all and all see them; with `summaries` all see the ends of blocks, with `drawn`
    a block sees others that are drawn for it.
    """

    near: int
    step: int = 1
    first: int = 0
    summaries: bool = False
    drawn: bool = False


def reach_of(config: StackConfig, pattern: str) -> Reach | None:
    """Return how far a pattern reaches; None where any token may see any other."""
    # A config asks for a window where a pattern needs one.
    window, block, columns = (config.sliding_window or 1) - 1, config.block_size, config.grid_columns
    square = (columns + 1) * (config.grid_kernel // 2)
    reaches = {
        "sliding": Reach(window),
        "dilated": Reach(window, step=config.dilation),
        "block_sparse": Reach(2 * block - 1, first=block),
        "random": Reach(2 * block - 1, first=block, drawn=True),
        "fixed": Reach(block - 1, summaries=True),
        "row": Reach(columns, first=config.text_length),
        "convolutional": Reach(square, first=config.text_length),
    }
    reach = reaches.get(pattern)
    return None if reach is None else reach._replace(first=max(reach.first, config.num_global_tokens))


def tokens_for_all(config: StackConfig, reach: Reach, layout: TokenLayout) -> Tensor | None:
    """Return which tokens all others see (B or 1, S); None where there are none."""
    chosen = layout.first(reach.first)
    if not reach.summaries:
        return chosen
    summaries = is_summary(config, layout.tokens)
    summaries = summaries if layout.padding is None else summaries & layout.padding
    return summaries if chosen is None else summaries | chosen


def block_starts(config: StackConfig, queries: int) -> list[int]:
    """Return places in a chunk of queries among which each of its blocks has one, wherever blocks begin."""
    return [*range(0, queries - 1, config.block_size), queries - 1]


def drawn_keys(config: StackConfig, layout: TokenLayout, queries: Tensor) -> Tensor:
    """Return the places of the keys drawn for each chunk, which may lie outside the row: (1, N, C) -> (R, N, E)."""
    places = queries[0, :, block_starts(config, queries.shape[-1])].long()
    tokens = layout.tokens[:, places]
    drawn = torch.stack(random_blocks(config, tokens // config.block_size), dim=-1)
    inside = torch.arange(config.block_size)
    keys = (places - tokens)[..., None, None] + drawn[..., None] * config.block_size + inside
    return keys.flatten(2)


class WindowPlan(Plan):
    """Compute patterns that see few keys in chunks of queries, each with the keys that any of it may see."""

    @classmethod
    def of(cls, stack: StackParts, inputs: StackInputs) -> "WindowPlan | None":
        """Return the plan where a pattern has windows and there are several tokens."""
        windows = any(reach_of(stack.config, pattern) for pattern in first_layers(stack.config))
        usable = inputs.backend == "sdpa" and not stack.config.keeps_state and inputs.sizes.length > 1
        usable = usable and not (stack.config.attention_sinks or stack.config.position_word in DISENTANGLED_POSITIONS)
        return cls(stack, inputs) if windows and usable else None

    def build_masks(self, build: MaskBuilder = build_mask) -> AttentionMasks:
        def near_or_dense(
            backend: str, hidden: Tensor, sizes: MaskSizes, layer: int, padding: Tensor | None, rule: Rule, **how: Any
        ) -> Mask:
            near, layout, pattern = None, how["layout"], how["pattern"]
            if can_use_windows(hidden, sizes, layout):
                near = window_mask(self.config, pattern, rule[0], layout, TokenRange.of(sizes, layer))
            return near or build(backend, hidden, sizes, layer, padding, rule, **how)

        return super().build_masks(near_or_dense)

    def mask(self, pattern: str) -> Mask:
        mask = self.masks.masks[pattern]
        if not isinstance(mask, WindowMask):
            return mask

        def bias_of(rows: Tensor) -> Tensor | None:
            return self.stack.position.bias(*mask.compared_rows(rows, self.positions, self.masks.key_positions))

        bias = bias_of(mask.rows) if mask.rows.numel() else None
        row_masks = mask.row_masks if bias is None else torch.where(mask.row_masks, bias, -torch.inf)
        return replace(mask, bias_of=bias_of, row_masks=row_masks)

    def bias(self, pattern: str, layer: int) -> Tensor | None:
        mask = self.masks.masks[pattern]
        if not isinstance(mask, WindowMask):
            return super().bias(pattern, layer)
        return self.stack.position.bias(*mask.compared(self.positions, self.masks.key_positions))


def can_use_windows(hidden: Tensor, sizes: MaskSizes, layout: TokenLayout) -> bool:
    """Return True where keys are as many as tokens and the real ones of a row follow each other.

    A compiled graph, which reads no values, takes chunks of whole texts alone; an exported one is for all lengths.
    """
    if sizes.length == 1 or not isinstance(sizes.past, int) or sizes.total != sizes.past + sizes.length:
        return False
    padding = layout.padding
    if torch.compiler.is_compiling():
        whole = padding is None and layout.documents is None
        return whole and hidden.device.type == "cpu" and not torch.compiler.is_exporting()
    if padding is None or not can_read_values(hidden):
        return can_read_values(hidden)
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


def is_sparse(config: StackConfig, pattern: str, span: TokenRange, apart: int = 0, rows: int = 0) -> bool:
    """Return True where chunks compute fewer pairs than dense attention: the one place that chooses between them.

    `apart` keys are seen by all queries, and `rows` queries see all keys.
    """
    reach = reach_of(config, pattern)
    if reach is None:
        return False
    if reach.drawn:  # the same key twice where two blocks draw it
        apart += len(block_starts(config, QUERIES)) * config.num_random_blocks * config.block_size
    width = reach.near * (1 if config.causal else 2) + QUERIES + apart
    chunks = reach.step * -(-span.queries // (QUERIES * reach.step))
    pairs = chunks * QUERIES * width * (COPYING if apart else 1)
    return pairs + rows * span.keys <= SHARE * span.queries * span.keys


def window_mask(
    config: StackConfig, pattern: str, predicate: Predicate, layout: TokenLayout, span: TokenRange
) -> WindowMask | None:
    """Build the masks of chunks; None where dense attention is as fast.

    `predicate` tells for row, head, query and key of the batch whether they may attend.
    """
    reach = reach_of(config, pattern)
    if reach is None or (reach.drawn and layout.documents is not None):
        return None
    # In a causal stack tokens that are seen by all see only earlier tokens.
    see_all, seen_by_all = None if config.causal else layout.first(reach.first), tokens_for_all(config, reach, layout)
    if torch.compiler.is_compiling() and (see_all is not None or seen_by_all is not None or reach.drawn):
        return None
    rows = places_of(see_all, span.query, span.queries)
    apart = places_of(seen_by_all, span.key, span.keys)
    if not is_sparse(config, pattern, span, apart.shape[1], rows.shape[1]):
        return None
    queries, starts = chunk_queries(reach, span)
    apart = apart_keys(config, reach, layout, apart, queries)
    width = reach.near + QUERIES + (0 if config.causal else reach.near)
    keys, once = chunk_keys(starts, width, reach.step, apart, span)

    def rows_of(wanted: Tensor) -> Tensor:
        return visible(predicate, layout, wanted[:, None], torch.arange(span.key, span.key + span.keys)[None, None])

    chunks = added_masks(predicate, layout, queries, keys, once)
    apart = (apart - span.key).clamp(min=0, max=span.keys - 1)
    row_masks = rows_of(rows.clamp(min=0))
    return WindowMask(chunks, span, reach.step, reach.near, apart, rows, row_masks, rows_of, queries, keys)


def chunk_queries(reach: Reach, span: TokenRange) -> tuple[Tensor, Tensor]:
    """Return the places of the queries of chunks (1, N, C), and those of their first near keys (N, 1)."""
    step, chunks = reach.step, -(-span.queries // (QUERIES * reach.step))
    steps = torch.arange(chunks * QUERIES, dtype=torch.int32) * step
    queries = (torch.arange(step, dtype=torch.int32)[:, None] + steps + span.query).view(1, -1, QUERIES)
    starts = queries[0, :, :1] - reach.near * step
    return queries.clamp(max=span.query + span.queries - 1), starts


def apart_keys(config: StackConfig, reach: Reach, layout: TokenLayout, shared: Tensor, queries: Tensor) -> Tensor:
    """Return the places of the keys that lie apart, those of all chunks (R, E) or also those drawn for each.

    Shapes: shared (R, E), queries (1, N, C) -> (R, 1 or N, E), -1 for one that a chunk has already
    """
    if not reach.drawn:
        return shared[:, None]
    drawn = drawn_keys(config, layout, queries)
    apart = torch.cat((shared[:, None].expand(len(drawn), drawn.shape[1], -1), drawn), dim=-1).sort(dim=-1).values
    return torch.where(F.pad(apart.diff() == 0, (1, 0)), -1, apart)


def chunk_keys(starts: Tensor, width: int, step: int, apart: Tensor, span: TokenRange) -> tuple[Tensor, Tensor]:
    """Return the places of the keys of chunks (R, N, W), and where each is one that was not there before.

    Shapes: starts (N, 1) of the keys that lie together, apart (R, 1 or N, E)
    """
    near = starts + torch.arange(width, dtype=torch.int32) * step
    apart = apart.int().expand(-1, len(near), -1)
    distance, end = apart - starts, span.key + span.keys
    alone = (apart >= span.key) & (apart < end)
    alone &= (distance < 0) | (distance >= width * step) | (distance % step != 0)
    inside = ((near >= span.key) & (near < end)).expand(len(apart), -1, -1)
    keys = torch.cat((apart, near.expand_as(inside)), dim=-1).clamp(span.key, end - 1)
    return keys, torch.cat((alone, inside), dim=-1)


def added_masks(predicate: Predicate, layout: TokenLayout, queries: Tensor, keys: Tensor, once: Tensor) -> Tensor:
    """Return the masks added to the scores of chunks (R, N, C, W), some chunks at a time, which stay in a cache.

    Shapes: queries (1, N, C), keys (R, N, W), once (R, N, W), where a key is one that a chunk does not have yet
    """
    added = torch.zeros(max(len(layout.tokens), len(keys)), *queries.shape[1:], keys.shape[-1])
    some = len(added[0]) if torch.compiler.is_compiling() else max(PAIRS // added[:, 0].numel(), 1)
    parts = (each.split(some, dim=1) for each in (added, queries, keys, once))
    for part, own_queries, own_keys, own_once in zip(*parts, strict=True):
        seen = visible(predicate, layout, own_queries, own_keys) & own_once[:, :, None]
        # Padding sees all: its outputs are not read, and softmax needs a key.
        seen |= ~seen.any(-1, keepdim=True)
        part.masked_fill_(seen.logical_not_(), -torch.inf)
    return added


def visible(predicate: Predicate, layout: TokenLayout, queries: Tensor, keys: Tensor) -> Tensor:
    """Return which keys are seen: places (R or 1, N, C) and (R or 1, N, W) -> (R, N, C, W)."""
    row = torch.arange(len(layout.tokens)).view(-1, 1, 1, 1)
    seen = cast(Tensor, predicate(row, row, queries[..., None], keys[:, :, None]))
    if layout.padding is not None:
        real = layout.padding.gather(1, keys.long().flatten(1).expand(len(row), -1))
        seen = seen & real.view(len(row), *keys.shape[1:])[:, :, None]
    return seen
