"""Attention masks: positions of tokens, and one mask for each pattern met with causality, padding and packing.

Shapes: B batch, T queries, S keys (all that a cache can hold), H heads.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask
from transformers.cache_utils import Cache
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    and_masks,
    bidirectional_mask_function,
    causal_mask_function,
)

from ..configuration.axes import MASKLESS_PATTERNS
from ..configuration.configuration_stack import StackConfig
from .checks.inputs import (
    check_document_boundaries,
    check_finished_mask,
    check_memory_mask,
    check_padding_mask,
    check_position_ids,
)
from .fast_paths.windows import WindowMask, can_use_windows, window_mask
from .pattern import PATTERNS, Predicate


@dataclass
class DocumentMask:
    """The mask of documents packed in one row, each of which attends to its own keys alone.

    `queries` and `keys` are the lengths of the documents, `masks` the mask inside each (1, 1, T, S), None where it sees
    all keys or, in causal attention, all before.
    """

    queries: list[int]
    keys: list[int]
    masks: list[Tensor | WindowMask | None]


# A dense mask, flex attention's block mask, masks by document or window, or None where the backend needs none.
Mask = BlockMask | DocumentMask | WindowMask | Tensor | None
# What a caller may give as `attention_mask`: marks of real tokens, a finished mask, or finished masks by their names.
GivenMask = Tensor | dict[str, Tensor] | None
# A predicate, with what lets a backend go without the mask.
Rule = tuple[Predicate, dict[str, bool | int | None]]


@dataclass
class AttentionMasks:
    """Positions of queries (B or 1, T) and keys (B or 1, S), and one mask for each pattern in use."""

    positions: Tensor
    key_positions: Tensor
    masks: dict[str, Mask]

    def compared(self, sizes: "MaskSizes", layer: int) -> tuple[Tensor, Tensor]:
        """Return the positions of queries and of keys to whose scores a layer's bias is added."""
        keys, first = sizes.keys(layer)
        return self.positions, self.key_positions[:, first : first + keys]


@dataclass
class TokenLayout:
    """The layout of tokens: real ones (B, S), their number in a document, the number of the document (B or 1, S).

    `padding` is None without padding, `documents` where every row is one.
    """

    padding: Tensor | None
    tokens: Tensor
    documents: Tensor | None


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
    """Return the first layer of each pattern in use: layers of one pattern share their mask."""
    return {pattern: layer for layer, pattern in reversed(list(enumerate(config.layer_patterns)))}


def build_masks(
    config: StackConfig,
    hidden: Tensor,
    sizes: MaskSizes,
    attention_mask: GivenMask = None,
    position_ids: Tensor | None = None,
    **kwargs: Any,
) -> AttentionMasks:
    """Build the attention masks once a forward, the same way for every backend, or pass through prebuilt ones.

    `attention_mask` (B, S) marks real tokens; a finished mask (B, 1, T, S), a dict of `create_masks_for_generate` and
    what continuous batching hands over are used as they are. Positions follow the marks unless `position_ids` are
    given; position ids that restart, or `cu_seq_lens_q`, separate documents packed in one row.
    `attention_implementation` overrides the config's.
    """
    position_ids = None if position_ids is None else position_ids.long()
    if kwargs.get("cache") is not None and position_ids is not None:
        return masks_from_paged_cache(config, attention_mask, position_ids)
    if isinstance(attention_mask, dict):
        return masks_from_generate(attention_mask, sizes, position_ids)
    finished = attention_mask if attention_mask is not None and attention_mask.ndim == 4 else None
    layout = lay_out(hidden, sizes, None if finished is not None else attention_mask, position_ids, **kwargs)
    padding, documents = layout.padding, layout.documents
    positions, keys = token_positions(hidden, sizes, padding, layout.tokens, position_ids)
    layers = first_layers(config)
    if finished is not None:
        check_finished_mask(finished, hidden, {sizes.keys(layer)[0] for layer in layers.values()})
        return AttentionMasks(positions, keys, dict.fromkeys(layers, finished))
    implementation = kwargs.get("attention_implementation") or config._attn_implementation
    tokens = layout.tokens.expand(hidden.shape[0], -1)
    windows = implementation == "sdpa" and can_use_windows(config, hidden, sizes, layout)
    masks: dict[str, Mask] = {}
    for pattern, layer in layers.items():
        rule = mask_rule(config, pattern, tokens, documents)
        near = window_mask(config, pattern, sizes.length, rule[0]) if windows else None
        masks[pattern] = near or build_mask(implementation, hidden, sizes, layer, padding, rule)
    return AttentionMasks(positions, keys, masks)


def lay_out(
    hidden: Tensor, sizes: MaskSizes, padding_mask: Tensor | None, position_ids: Tensor | None, **kwargs: Any
) -> TokenLayout:
    """Find padding and packed documents, and count the tokens of each document."""
    padding = pad_to_keys(padding_mask, hidden, sizes)
    tokens = count_tokens(hidden, sizes, padding)
    check_position_ids(hidden, position_ids)
    documents = find_documents(hidden, sizes, padding, position_ids, kwargs.get("cu_seq_lens_q"))
    return TokenLayout(padding, tokens if documents is None else restart_at_documents(tokens, documents), documents)


def masks_from_paged_cache(config: StackConfig, attention_mask: GivenMask, position_ids: Tensor) -> AttentionMasks:
    """Take over the masks of continuous batching: one for each kind of cache, or one for all; positions (1, T).

    Keys come out of its cache only inside the attention, so nothing here knows their positions.
    """
    masks = attention_mask if isinstance(attention_mask, dict) else dict.fromkeys(config.layer_types, attention_mask)
    kinds = dict(zip(config.layer_patterns, config.layer_types, strict=True))
    return AttentionMasks(position_ids, position_ids, {pattern: masks[kind] for pattern, kind in kinds.items()})


def masks_from_generate(prepared: dict[str, Tensor], sizes: MaskSizes, position_ids: Tensor | None) -> AttentionMasks:
    """Take over what `create_masks_for_generate` made ahead of a compiled step: masks, and positions of keys."""
    masks: dict[str, Mask] = {name: mask for name, mask in prepared.items() if name != "key_positions"}
    keys = prepared["key_positions"]
    positions = keys.index_select(1, sizes.index(keys.device)) if position_ids is None else position_ids
    return AttentionMasks(positions, keys, masks)


def pad_to_keys(attention_mask: Tensor | None, hidden: Tensor, sizes: MaskSizes) -> Tensor | None:
    """Return the marks of real tokens as booleans over all keys (B, S); keys past their end are not yet filled."""
    if attention_mask is None:
        return None
    check_padding_mask(attention_mask, hidden, sizes.past, sizes.length)
    return F.pad(attention_mask.to(hidden.device, torch.bool), (0, max(sizes.total - attention_mask.shape[1], 0)))


def count_tokens(hidden: Tensor, sizes: MaskSizes, padding: Tensor | None) -> Tensor:
    """Count the real tokens before each key (B or 1, S)."""
    if padding is None:
        return torch.arange(sizes.total, device=hidden.device)[None]
    return (padding.cumsum(-1) - 1).clamp(min=0)


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


def find_documents(
    hidden: Tensor, sizes: MaskSizes, padding: Tensor | None, position_ids: Tensor | None, boundaries: Tensor | None
) -> Tensor | None:
    """Index the documents packed in a row, token by token (B or 1, S); None when nothing is packed.

    A document begins where the position of a real token does not exceed that of the real token before it.
    """
    if boundaries is not None:
        check_document_boundaries(boundaries, hidden)
        index = torch.arange(sizes.total, device=hidden.device)
        return torch.searchsorted(boundaries[1:].to(index), index, right=True)[None]
    # A static cache counts in a tensor once it is used, and a compiler cannot read that.
    unknown = isinstance(sizes.past, Tensor) and torch.compiler.is_compiling()
    if position_ids is None or sizes.length == 1 or unknown or sizes.past:
        return None
    steps = torch.arange(sizes.length, device=position_ids.device).expand_as(position_ids)
    positions = position_ids
    if padding is not None:
        padding = padding[:, : sizes.length]
        positions = position_ids.expand_as(padding)
        # Padding repeats the position of the real token before it; in front of all, it lies below every position.
        steps = torch.where(padding, steps, -1).cummax(-1).values
        positions = torch.where(steps < 0, -1, positions.gather(1, steps.clamp(min=0)))
    before = F.pad(positions[:, :-1], (1, 0), value=-1)
    starts = positions <= before if padding is None else (positions <= before) & padding
    documents = starts.cumsum(-1)
    if not torch.compiler.is_compiling() and not bool(starts.any()):
        return None
    return F.pad(documents, (0, sizes.total - sizes.length), value=-1)


def restart_at_documents(tokens: Tensor, documents: Tensor) -> Tensor:
    """Restart the count of tokens at 0 with each document: 2 x (B or 1, S) -> (B, S)."""
    starts = F.pad(documents[:, 1:] != documents[:, :-1], (1, 0), value=True)
    return tokens - torch.where(starts, tokens, 0).cummax(-1).values


def mask_rule(config: StackConfig, pattern: str, tokens: Tensor, documents: Tensor | None) -> Rule:
    """Return the predicate of one pattern, and what lets a backend go without a mask."""
    predicates = [PATTERNS[pattern](config, tokens)]
    if config.causal:
        predicates.append(causal_mask_function)
    if documents is not None:
        documents = documents.expand(tokens.shape[0], -1)
        predicates.append(lambda batch, head, query, key: documents[batch, query] == documents[batch, key])
    plain = pattern in MASKLESS_PATTERNS and documents is None
    shortcuts = {
        "allow_is_causal_skip": plain and config.causal,
        "allow_is_bidirectional_skip": not config.causal and plain,
        "local_size": config.sliding_window if pattern == "sliding" else None,
    }
    return and_masks(*predicates), shortcuts


def build_mask(
    implementation: str, hidden: Tensor, sizes: MaskSizes, layer: int, padding: Tensor | None, rule: Rule
) -> Mask:
    """Build the mask a backend wants: dense, boolean, a block mask, the marks of real tokens (B, S), or None."""
    if implementation not in ALL_MASK_ATTENTION_FUNCTIONS:
        return None
    predicate, shortcuts = rule
    compiled_step = getattr(sizes.cache, "is_compileable", False) and sizes.length == 1
    keys, first_key = sizes.keys(layer)
    return ALL_MASK_ATTENTION_FUNCTIONS[implementation](
        batch_size=hidden.shape[0],
        q_length=sizes.length,
        kv_length=keys,
        q_offset=sizes.past,
        kv_offset=first_key,
        mask_function=predicate,
        attention_mask=padding,
        dtype=hidden.dtype,
        device=hidden.device,
        **{**shortcuts, "allow_is_causal_skip": shortcuts["allow_is_causal_skip"] and not compiled_step},
    )


def build_memory_mask(implementation: str, hidden: Tensor, memory: Tensor, memory_mask: Tensor | None) -> Mask:
    """Build the mask of cross-attention: every query reads every real token of memory (B, S, D)."""
    if memory_mask is not None and memory_mask.ndim == 4:
        return memory_mask
    check_memory_mask(memory_mask, memory)
    padding = None if memory_mask is None else memory_mask.to(hidden.device, torch.bool)
    rule: Rule = (bidirectional_mask_function, {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": True})
    return build_mask(implementation, hidden, MaskSizes(0, hidden.shape[1], memory.shape[1], None), 0, padding, rule)
