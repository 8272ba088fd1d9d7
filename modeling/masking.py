"""Attention masks: positions of tokens, and one mask for each pattern met with causality, padding and packing.

Shapes: B batch, T queries, S keys (all that a cache can hold), H heads.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    and_masks,
    bidirectional_mask_function,
    causal_mask_function,
    or_masks,
)

from ..configuration.axes import MASKLESS_PATTERNS, STATE_KERNELS
from ..configuration.configuration_stack import StackConfig
from .checks.inputs import check_finished_mask, check_memory_mask
from .fast_paths.windows import TokenRange, WindowMask, can_use_windows, window_mask
from .pattern import PATTERNS, Predicate, touches
from .position.token_layout import MaskSizes, TokenLayout, first_layers, lay_out, token_positions


@dataclass
class Documents:
    """The real tokens of a batch of `shape` (B, T): their index among all (N,), and the length of each document."""

    index: Tensor
    lengths: list[int]
    shape: tuple[int, int]

    def pack(self, values: Tensor) -> Tensor:
        """Put the real tokens in one row: (B, T, ...) -> (1, N, ...)."""
        return values.flatten(0, 1).index_select(0, self.index)[None]

    def restore(self, packed: Tensor) -> Tensor:
        """Put them back, with zeros at padding: (1, N, D) -> (B, T, D)."""
        batch, length = self.shape
        restored = packed.new_zeros(batch * length, packed.shape[-1]).index_copy(0, self.index, packed[0])
        return restored.unflatten(0, (batch, length))


@dataclass
class DocumentMask:
    """The mask of documents packed in one row, each of which attends to its own keys alone.

    `masks` holds the mask inside each (1, 1, T, S), None where it sees all keys or, in causal attention, all before.
    """

    queries: Documents
    keys: Documents
    masks: list[Tensor | WindowMask | None]


@dataclass
class TokenMask:
    """The mask of kernels that keep a state: real tokens (B, T), and the document of each (B or 1, T); None for all.

    Whatever a causal one reads of earlier tokens is in its state already.
    """

    padding: Tensor | None
    documents: Tensor | None

    @classmethod
    def of(cls, layout: TokenLayout, index: Tensor) -> "TokenMask | None":
        """Return the mask of the tokens that are read, at these places among all keys; None where it hides nothing."""
        parts = [None if part is None else part.index_select(1, index) for part in (layout.padding, layout.documents)]
        return None if parts == [None, None] else cls(*parts)


# A dense mask, flex attention's block mask, masks by document, window or token, or None where nothing is hidden.
Mask = BlockMask | DocumentMask | WindowMask | TokenMask | Tensor | None
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

    def compared(self, sizes: MaskSizes, pattern: str, layer: int) -> tuple[Tensor, Tensor]:
        """Return the positions of queries and of keys to whose scores the bias of a pattern's layers is added."""
        mask = self.masks[pattern]
        if isinstance(mask, WindowMask):
            return mask.compared(self.positions, self.key_positions)
        keys, first = sizes.keys(layer)
        return self.positions, self.key_positions[:, first : first + keys]

    def compared_rows(self, pattern: str) -> tuple[Tensor, Tensor] | None:
        """Return the same of queries that see all keys where others are computed in chunks; None where none are."""
        mask = self.masks[pattern]
        if not isinstance(mask, WindowMask) or not mask.rows.numel():
            return None
        return mask.compared_rows(self.positions, self.key_positions)


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
    padding = layout.padding
    positions, keys = token_positions(hidden, sizes, padding, layout.tokens, position_ids)
    layers = first_layers(config)
    if finished is not None:
        check_mask_of_pairs(config, finished)
        check_finished_mask(finished, hidden, {sizes.keys(layer)[0] for layer in layers.values()})
        return AttentionMasks(positions, keys, dict.fromkeys(layers, finished))
    if config.kernel in STATE_KERNELS:
        return AttentionMasks(positions, keys, {"full": TokenMask.of(layout, sizes.index(hidden.device))})
    implementation = kwargs.get("attention_implementation") or config._attn_implementation
    whole = replace(layout, tokens=layout.tokens.int().expand(hidden.shape[0], -1))
    windows = implementation == "sdpa" and can_use_windows(config, hidden, sizes, layout)
    masks: dict[str, Mask] = {}
    for pattern, layer in layers.items():
        rule = mask_rule(config, pattern, whole)
        near = window_mask(config, pattern, rule[0], layout, TokenRange.of(sizes, layer)) if windows else None
        masks[pattern] = near or build_mask(implementation, hidden, sizes, layer, padding, rule)
    return AttentionMasks(positions, keys, masks)


def check_mask_of_pairs(config: StackConfig, attention_mask: Tensor) -> None:
    """Raise ValueError on a mask of pairs of tokens where the kernel never looks at a pair."""
    if config.kernel in STATE_KERNELS:
        raise ValueError(
            f"attention_mask of shape {tuple(attention_mask.shape)} is one of pairs, which kernel={config.kernel!r} "
            "never looks at; mark real tokens (batch, length)"
        )


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


def mask_rule(config: StackConfig, pattern: str, layout: TokenLayout) -> Rule:
    """Return the predicate of one pattern for tokens (B, S), and what lets a backend go without a mask."""
    tokens, documents = layout.tokens, layout.documents
    chosen = None if pattern == "full" else layout.first(config.num_global_tokens)
    predicates = [PATTERNS[pattern](config, tokens)]
    if chosen is not None:
        predicates = [or_masks(*predicates, touches(chosen.expand(tokens.shape)))]
    if config.causal:
        predicates.append(causal_mask_function)
    if documents is not None:
        documents = documents.expand(tokens.shape[0], -1)
        predicates.append(lambda batch, head, query, key: documents[batch, query] == documents[batch, key])
    plain = pattern in MASKLESS_PATTERNS and documents is None and chosen is None
    shortcuts = {
        "allow_is_causal_skip": plain and config.causal,
        "allow_is_bidirectional_skip": not config.causal and plain,
        "local_size": config.sliding_window if pattern == "sliding" and chosen is None else None,
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


def build_memory_mask(
    config: StackConfig, implementation: str, hidden: Tensor, memory: Tensor, memory_mask: Tensor | None
) -> Mask:
    """Build the mask of cross-attention: every query reads every real token of memory (B, S, D)."""
    if memory_mask is not None and memory_mask.ndim == 4:
        check_mask_of_pairs(config, memory_mask)
        return memory_mask
    check_memory_mask(memory_mask, memory)
    padding = None if memory_mask is None else memory_mask.to(hidden.device, torch.bool)
    if config.kernel in STATE_KERNELS:
        return None if padding is None else TokenMask(padding, None)
    rule: Rule = (bidirectional_mask_function, {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": True})
    return build_mask(implementation, hidden, MaskSizes(0, hidden.shape[1], memory.shape[1], None), 0, padding, rule)
