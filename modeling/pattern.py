"""Which pairs may attend? A predicate on (batch, head, query index, key index), met with causality, padding, packing.

Shapes: B batch, T queries, S keys (all that a cache can hold), H heads.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.cache_utils import Cache
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    and_masks,
    bidirectional_mask_function,
    causal_mask_function,
)

from ..configuration.axes import MASKLESS
from ..configuration.configuration_stack import StackConfig
from .check import refuse_boundaries, refuse_mask, refuse_memory_mask, refuse_other_tokens, refuse_position_ids
from .pattern_grid import Predicate, column_pattern, convolutional_pattern, row_pattern

# A dense mask, flex attention's block mask, or None where the kernel needs none.
Mask = Any
# With what lets a backend go without the mask.
Rule = tuple[Predicate, dict[str, Any]]


def full(config: StackConfig, counts: Tensor) -> Predicate:
    """Every pair: the mean path between two tokens is one step, at quadratic cost.

    Source: Vaswani et al. 2017, Attention Is All You Need, §4, https://arxiv.org/abs/1706.03762
    Shapes: counts (B, S) -> predicate
    """
    return bidirectional_mask_function


def sliding(config: StackConfig, counts: Tensor) -> Predicate:
    """Pairs nearer than `sliding_window`, the token itself counted; depth widens the receptive field linearly.

    Source: Beltagy et al. 2020, Longformer, §3.1, https://arxiv.org/abs/2004.05150
    Shapes: counts (B, S) -> predicate
    """

    def near(batch: Any, head: Any, query: Any, key: Any) -> Tensor:
        # CODEPATH: images, which in a batch with wider ones have padding between their rows
        if config.frontend in ("feature_map", "patches"):
            query, key = counts[batch, query], counts[batch, key]
        return (query - key).abs() < config.sliding_window

    return near


def block_sparse(config: StackConfig, counts: Tensor) -> Predicate:
    """Pairs in the same or a neighbouring block of `block_size`, or with the first block, which is global.

    Any two tokens are two steps apart, through the global block. Blocks count the real tokens of a document, so
    neither padding in front nor shifted positions move them.

    Source: Zaheer et al. 2020, Big Bird, §2, https://arxiv.org/abs/2007.14062 (without random blocks)
    Shapes: counts (B, S) -> predicate
    """
    blocks = counts // config.block_size

    def linked(batch: Any, head: Any, query: Any, key: Any) -> Tensor:
        query_block, key_block = blocks[batch, query], blocks[batch, key]
        near = (query_block - key_block).abs() <= 1
        return near | (key_block == 0) | (query_block == 0)

    return linked


PATTERNS = {
    "full": full,
    "sliding": sliding,
    "block_sparse": block_sparse,
    "row": row_pattern,
    "column": column_pattern,
    "convolutional": convolutional_pattern,
}


@dataclass
class Visibility:
    """What each query may see: positions (B or 1, T), key positions (B or 1, S), one mask for each pattern in use."""

    positions: Tensor
    key_positions: Tensor
    masks: dict[str, Mask]


@dataclass
class Span:
    """Where a chunk of queries lies among all keys: `past` before it, `length` of it, `total` slots for keys."""

    past: int | Tensor
    length: int
    total: int
    cache: Cache | None

    @classmethod
    def of(cls, config: StackConfig, length: int, cache: Cache | None) -> "Span":
        """The span of the next `length` tokens, with or without a cache."""
        if cache is None:
            return cls(0, length, length, None)
        past = cache.get_seq_length()
        # A static cache counts in a tensor that it advances in place.
        past = past.clone() if isinstance(past, Tensor) else past
        layers = {pattern: layer for layer, pattern in enumerate(config.layer_patterns)}.values()
        return cls(past, length, max(sum(cache.get_mask_sizes(length, layer)) for layer in layers), cache)

    def window(self, layer: int) -> tuple[int, int]:
        """(number of keys, index of the first) that the given layer attends to."""
        return (self.total, 0) if self.cache is None else self.cache.get_mask_sizes(self.length, layer)

    def index(self, device: torch.device) -> Tensor:
        """Index of each query among the keys (T,)."""
        return torch.arange(self.length, device=device) + self.past


def see(
    config: StackConfig,
    hidden: Tensor,
    span: Span,
    attention_mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    **kwargs: Any,
) -> Visibility:
    """Work out positions and masks once a forward, the same way for every backend.

    `attention_mask` (B, S) marks real tokens, or is a finished mask (B, 1, T, S), which is used as it is. Positions
    follow it unless `position_ids` are given; position ids that restart, or `cu_seq_lens_q`, separate documents packed
    in one row. `attention_implementation` overrides the config's.
    """
    finished = attention_mask is not None and len(attention_mask.shape) == 4
    keep = None if finished or attention_mask is None else real_tokens(attention_mask, hidden, span)
    counts = token_counts(hidden, span, keep)
    refuse_position_ids(hidden, position_ids)
    documents = find_documents(hidden, span, keep, position_ids, kwargs.get("cu_seq_lens_q"))
    if documents is not None:
        counts = restarted(counts, documents)
    positions, keys = token_positions(hidden, span, keep, counts, position_ids)
    counts = counts.expand(hidden.shape[0], -1)
    patterns = {pattern: layer for layer, pattern in reversed(list(enumerate(config.layer_patterns)))}
    if finished and isinstance(attention_mask, Tensor):
        refuse_mask(attention_mask, hidden, {span.window(layer)[0] for layer in patterns.values()})
    implementation = kwargs.get("attention_implementation") or config._attn_implementation
    masks: dict[str, Mask] = {
        pattern: attention_mask
        if finished
        else build_mask(implementation, hidden, span, layer, keep, rules(config, pattern, counts, documents))
        for pattern, layer in patterns.items()
    }
    return Visibility(positions, keys, masks)


def real_tokens(attention_mask: Tensor, hidden: Tensor, span: Span) -> Tensor:
    """The mask as booleans over all key slots (B, S); slots past its end are not yet filled."""
    refuse_other_tokens(attention_mask, hidden, span.past, span.length)
    return F.pad(attention_mask.to(hidden.device, torch.bool), (0, max(span.total - attention_mask.shape[1], 0)))


def token_counts(hidden: Tensor, span: Span, keep: Tensor | None) -> Tensor:
    """How many real tokens stand before each key (B or 1, S): padding is not counted."""
    if keep is None:
        return torch.arange(span.total, device=hidden.device)[None]
    return (keep.cumsum(-1) - 1).clamp(min=0)


def token_positions(
    hidden: Tensor, span: Span, keep: Tensor | None, keys: Tensor, position_ids: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Positions of queries (B or 1, T) and of keys (B or 1, S): counted, unless `position_ids` number them."""
    index = span.index(hidden.device)
    if position_ids is None:
        return keys.index_select(1, index), keys
    # Cached keys keep their distance to the last real token of this chunk.
    rows = max(keys.shape[0], position_ids.shape[0])
    keys, positions = keys.expand(rows, -1), position_ids.expand(rows, -1)
    steps = torch.arange(1, span.length + 1, device=hidden.device)
    real = steps if keep is None else keep.index_select(1, index) * steps
    last = real.argmax(-1).expand(rows)[:, None]
    shift = positions.gather(1, last) - keys.index_select(1, index).gather(1, last)
    return positions, (keys + shift).index_copy(1, index, positions)


def find_documents(
    hidden: Tensor, span: Span, keep: Tensor | None, position_ids: Tensor | None, boundaries: Tensor | None
) -> Tensor | None:
    """Document number of each token (B or 1, S) of a packed row, or None when nothing is packed.

    A document begins where the position of a real token does not exceed that of the real token before it.
    """
    if boundaries is not None:
        refuse_boundaries(boundaries, hidden)
        index = torch.arange(span.total, device=hidden.device)
        return torch.searchsorted(boundaries[1:].to(index), index, right=True)[None]
    # A static cache counts in a tensor once it is used, and a compiler cannot read that.
    unknown = isinstance(span.past, Tensor) and torch.compiler.is_compiling()
    if position_ids is None or span.length == 1 or unknown or span.past:
        return None
    steps = torch.arange(span.length, device=position_ids.device).expand_as(position_ids)
    positions = position_ids
    if keep is not None:
        keep = keep[:, : span.length]
        positions = position_ids.expand_as(keep)
        # Padding repeats the position of the real token before it; in front of all, it lies below every position.
        steps = torch.where(keep, steps, -1).cummax(-1).values
        positions = torch.where(steps < 0, -1, positions.gather(1, steps.clamp(min=0)))
    before = F.pad(positions[:, :-1], (1, 0), value=-1)
    starts = positions <= before if keep is None else (positions <= before) & keep
    documents = starts.cumsum(-1)
    if not torch.compiler.is_compiling() and not bool(starts.any()):
        return None
    return F.pad(documents, (0, span.total - span.length), value=-1)


def restarted(counts: Tensor, documents: Tensor) -> Tensor:
    """Counts that restart at 0 with each document (B or 1, S)."""
    starts = F.pad(documents[:, 1:] != documents[:, :-1], (1, 0), value=True)
    return counts - torch.where(starts, counts, 0).cummax(-1).values


def rules(config: StackConfig, pattern: str, counts: Tensor, documents: Tensor | None) -> Rule:
    """The predicate of one pattern, and what lets a kernel go without a mask."""
    predicates = [PATTERNS[pattern](config, counts)]
    # CODEPATH: every decoder
    if config.causal:
        predicates.append(causal_mask_function)
    if documents is not None:
        documents = documents.expand(counts.shape[0], -1)
        predicates.append(lambda batch, head, query, key: documents[batch, query] == documents[batch, key])
    plain = pattern in MASKLESS and documents is None
    shortcuts = {
        "allow_is_causal_skip": plain and config.causal,
        "allow_is_bidirectional_skip": not config.causal and plain,
        "local_size": config.sliding_window if pattern == "sliding" else None,
    }
    return and_masks(*predicates), shortcuts


def build_mask(implementation: str, hidden: Tensor, span: Span, layer: int, keep: Tensor | None, rule: Rule) -> Mask:
    """The mask as the attention implementation wants it: dense, boolean, block, the (B, S) padding itself, or None."""
    if implementation not in ALL_MASK_ATTENTION_FUNCTIONS:
        return None
    predicate, shortcuts = rule
    compiled_step = getattr(span.cache, "is_compileable", False) and span.length == 1
    keys, first_key = span.window(layer)
    return ALL_MASK_ATTENTION_FUNCTIONS[implementation](
        batch_size=hidden.shape[0],
        q_length=span.length,
        kv_length=keys,
        q_offset=span.past,
        kv_offset=first_key,
        mask_function=predicate,
        attention_mask=keep,
        dtype=hidden.dtype,
        device=hidden.device,
        **{**shortcuts, "allow_is_causal_skip": shortcuts["allow_is_causal_skip"] and not compiled_step},
    )


def paged(config: StackConfig, attention_mask: Any, position_ids: Tensor) -> Visibility:
    """What continuous batching has worked out: finished masks by kind of cache, or one for all; positions (1, T).

    Keys come out of its cache only inside the attention, so nothing here knows their positions.
    """
    masks = attention_mask if isinstance(attention_mask, dict) else dict.fromkeys(config.layer_types, attention_mask)
    kinds = dict(zip(config.layer_patterns, config.layer_types, strict=True))
    return Visibility(position_ids, position_ids, {pattern: masks[kind] for pattern, kind in kinds.items()})


def see_memory(implementation: str, hidden: Tensor, memory: Tensor, memory_mask: Tensor | None) -> Mask:
    """The mask of cross-attention: every query sees every real token of memory (B, S, D)."""
    if memory_mask is not None and memory_mask.ndim == 4:
        return memory_mask
    refuse_memory_mask(memory_mask, memory)
    keep = None if memory_mask is None else memory_mask.to(hidden.device, torch.bool)
    rule = (bidirectional_mask_function, {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": True})
    return build_mask(implementation, hidden, Span(0, hidden.shape[1], memory.shape[1], None), 0, keep, rule)
