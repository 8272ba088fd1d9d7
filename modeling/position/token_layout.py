"""The layout of tokens in a batch: padding, packed documents, positions, and how many keys a cache holds.

Shapes: B batch, T queries, S keys (all that a cache can hold).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.cache_utils import Cache

from ...configuration.configuration_stack import StackConfig
from ..checks.inputs import can_read_values, check_boundaries, check_marks, check_padding_mask, check_position_ids


class Packing(NamedTuple):
    """Inputs that lay tokens out beside padding: positions (B or 1, T), boundaries of documents, global tokens (B, T).

    `cu_seq_lens_k` (documents + 1,) and `seq_idx` (B, T) repeat where documents begin. In continuous batching, `paged`,
    only the cache knows the documents.
    """

    position_ids: Tensor | None = None
    cu_seq_lens_q: Tensor | None = None
    cu_seq_lens_k: Tensor | None = None
    seq_idx: Tensor | None = None
    global_attention_mask: Tensor | None = None
    paged: bool = False

    @classmethod
    def of(cls, position_ids: Tensor | None, options: Mapping[str, Any]) -> "Packing":
        """Find the inputs among the options of a forward."""
        positions = None if position_ids is None else position_ids.long()
        named = {name: options.get(name) for name in cls._fields[1:-1]}
        return cls(positions, **named, paged=options.get("cache") is not None)


NO_PACKING = Packing()


@dataclass
class TokenLayout:
    """The layout of tokens: real ones (B, S), their number in a document, the number of the document (B or 1, S).

    `padding` is None without padding, `documents` where every row is one; `marked` (B, S) are global tokens or None.
    """

    padding: Tensor | None
    tokens: Tensor
    documents: Tensor | None
    marked: Tensor | None = None

    def first(self, count: int) -> Tensor | None:
        """Return which tokens are the first of their document, or marked as global (B or 1, S); None where none are."""
        first = self.tokens < count if count else None
        chosen = self.marked if first is None else first if self.marked is None else first | self.marked
        return chosen if chosen is None or self.padding is None else chosen & self.padding


@dataclass
class MaskSizes:
    """Query and key lengths of a forward: `length` queries after `past` keys; a cache has room for `total`."""

    past: int | Tensor
    length: int
    total: int
    cache: Cache | None

    @classmethod
    def of(cls, config: StackConfig, length: int, cache: Cache | None) -> "MaskSizes":
        """Return the sizes for the next `length` tokens, with or without a cache."""
        if cache is None:
            return cls(0, length, length, None)
        past = cache.get_seq_length()
        # A static cache counts in a tensor that it advances in place.
        past = past.clone() if isinstance(past, Tensor) else past
        layers = first_layers(config).values()
        return cls(past, length, max(sum(cache.get_mask_sizes(length, layer)) for layer in layers), cache)

    def keys(self, layer: int) -> tuple[int, int]:
        """Return the number of keys that a layer attends to, and the index of the first."""
        return (self.total, 0) if self.cache is None else self.cache.get_mask_sizes(self.length, layer)

    def index(self, device: torch.device) -> Tensor:
        """Return the index of each query among the keys (T,)."""
        return torch.arange(self.length, device=device) + self.past


def first_layers(config: StackConfig) -> dict[str, int]:
    """Return the first layer of each kind of mask in use, which layers of a pattern share."""
    return {kind: layer for layer, kind in reversed(list(enumerate(config.layer_masks)))}


def lay_out(
    hidden: Tensor, sizes: MaskSizes, padding_mask: Tensor | None, packing: Packing = NO_PACKING
) -> TokenLayout:
    """Find padding and packed documents, and count the tokens of each document."""
    padding = pad_to_keys(padding_mask, hidden, sizes)
    if padding is None:
        tokens = torch.arange(sizes.total, device=hidden.device)[None]
    else:
        tokens = (padding.cumsum(-1) - 1).clamp(min=0)
    check_position_ids(hidden, packing.position_ids)
    documents = find_documents(hidden, sizes, padding, packing)
    check_documents(documents, hidden, packing)
    if documents is not None:
        starts = F.pad(documents.diff() != 0, (1, 0), value=True)
        tokens = tokens - torch.where(starts, tokens, 0).cummax(-1).values
    marked = mark_global(packing.global_attention_mask, hidden, sizes)
    return TokenLayout(padding, tokens if marked is None else tokens.expand(len(marked), -1), documents, marked)


def mark_global(mask: Tensor | None, hidden: Tensor, sizes: MaskSizes) -> Tensor | None:
    """Return the marks of global tokens as booleans over all keys (B, S); None where no token is marked."""
    if mask is None:
        return None
    if mask.shape != hidden.shape[:2]:
        raise ValueError(
            f"global_attention_mask of shape {tuple(mask.shape)} does not fit {tuple(hidden.shape[:2])} tokens; give 1 "
            "for each global token and 0 for each other"
        )
    check_marks("global_attention_mask", mask)
    marked = mask.to(hidden.device, torch.bool)
    # Cached keys are a learned prefix.
    return F.pad(marked, (sizes.total - sizes.length, 0)) if sizes.total > sizes.length else marked


def pad_to_keys(attention_mask: Tensor | None, hidden: Tensor, sizes: MaskSizes) -> Tensor | None:
    """Return the marks of real tokens as booleans over all keys (B, S); keys past their end are not yet filled."""
    if attention_mask is None:
        return None
    check_padding_mask(attention_mask, hidden, sizes.past, sizes.length)
    return F.pad(attention_mask.to(hidden.device, torch.bool), (0, max(sizes.total - attention_mask.shape[1], 0)))


def token_positions(
    hidden: Tensor, sizes: MaskSizes, padding: Tensor | None, keys: Tensor, position_ids: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return positions of queries (B or 1, T) and of keys (B or 1, S): counted, unless `position_ids` number them."""
    index = sizes.index(hidden.device)
    if position_ids is None:
        return keys.index_select(1, index), keys
    # Cached keys keep their distance to the last real token of this chunk.
    rows = max(keys.shape[0], position_ids.shape[0])
    keys, positions = keys.expand(rows, -1), position_ids.expand(rows, -1)
    steps = torch.arange(1, sizes.length + 1, device=hidden.device)
    real = steps if padding is None else padding.index_select(1, index) * steps
    last = real.argmax(-1).expand(rows)[:, None]
    shift = positions.gather(1, last) - keys.index_select(1, index).gather(1, last)
    return positions, (keys + shift).index_copy(1, index, positions)


def find_documents(hidden: Tensor, sizes: MaskSizes, padding: Tensor | None, packing: Packing) -> Tensor | None:
    """Index the documents packed in a row, token by token (B or 1, S); None when nothing is packed.

    A document begins where the position of a real token does not exceed that of the real token before it.
    """
    position_ids, boundaries = packing.position_ids, packing.cu_seq_lens_q
    if boundaries is not None:
        check_boundaries(boundaries, hidden)
        index = torch.arange(sizes.total, device=hidden.device)
        return torch.searchsorted(boundaries[1:].to(index), index, right=True)[None]
    # A static cache counts in a tensor once it is used, and a compiler cannot read that.
    unknown = isinstance(sizes.past, Tensor) and torch.compiler.is_compiling()
    if position_ids is None or sizes.length == 1 or unknown or sizes.past:
        return None
    starts = document_starts(position_ids, None if padding is None else padding[:, : sizes.length])
    documents = starts.cumsum(-1)
    if not torch.compiler.is_compiling() and not bool(starts.any()):
        return None
    return F.pad(documents, (0, sizes.total - sizes.length), value=-1)


def document_starts(position_ids: Tensor, padding: Tensor | None) -> Tensor:
    """Mark the real tokens whose position does not exceed that of the real token before: (B or 1, T) -> (B or 1, T)."""
    positions, steps = position_ids, torch.arange(position_ids.shape[-1], device=position_ids.device)
    if padding is not None:
        positions = position_ids.expand_as(padding)
        # Padding repeats the position of the real token before it; in front of all, it lies below every position.
        steps = torch.where(padding, steps, -1).cummax(-1).values
        positions = torch.where(steps < 0, -1, positions.gather(1, steps.clamp(min=0)))
    starts = positions <= F.pad(positions[:, :-1], (1, 0), value=-1)
    return starts if padding is None else starts & padding


def check_documents(documents: Tensor | None, hidden: Tensor, packing: Packing) -> None:
    """Raise ValueError where `seq_idx` (B, T) or `cu_seq_lens_k`, which repeat where documents begin, differ."""
    index, keys, length = packing.seq_idx, packing.cu_seq_lens_k, hidden.shape[1]
    alone = index is not None and documents is None and packing.position_ids is None
    if keys is not None and can_read_values(keys):  # continuous batching has a dict
        keys = torch.searchsorted(keys[1:], torch.arange(length).to(keys), right=True)[None]
    begins = False if documents is None else documents[:, :length].diff() != 0
    told = [each for each in (index, keys) if each is not None and can_read_values(each)]
    if alone or any(((each.diff() != 0) != begins).any() for each in told):
        raise ValueError(
            "seq_idx or cu_seq_lens_k differs from the documents of position_ids or cu_seq_lens_q; leave it out"
        )
