"""Attention masks: positions of tokens, and one mask for each pattern met with causality, padding and packing.

Shapes: B batch, T queries, S keys (all that a cache can hold), H heads.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    and_masks,
    bidirectional_mask_function,
    causal_mask_function,
)

from ...configuration.axes import MASKLESS_PATTERNS
from ...configuration.configuration_stack import StackConfig
from ..checks.inputs import can_read_values, check_finished_mask, check_marks, check_memory_mask
from ..position.token_layout import NO_PACKING, MaskSizes, Packing, TokenLayout, first_layers, lay_out, token_positions
from .pattern import PATTERNS, Predicate, touches


class SparseMask(ABC):
    """A mask that hides so much that attention is computed in parts, each by an ordinary attention function."""

    @abstractmethod
    def attend(self, function: Any, module: Any, *heads: Any, **options: Any) -> tuple[Tensor, Tensor | None]:
        """Attend as functions of transformers do: (B, H, T, K), 2 x (B, G, S, K) -> (B, T, H, K), weights or None."""


@dataclass
class TokenMask:
    """The mask of kernels that keep a state: real tokens (B, T), and the document of each (B or 1, T); None for all.

    The state of a causal kernel already holds earlier tokens.
    """

    padding: Tensor | None
    documents: Tensor | None

    @classmethod
    def of(cls, layout: TokenLayout, index: Tensor) -> "TokenMask | None":
        """Return the mask of the tokens that are read, at these places among all keys; None where it hides nothing."""
        parts = [None if part is None else part.index_select(1, index) for part in (layout.padding, layout.documents)]
        return None if parts == [None, None] else cls(*parts)


# A dense mask, flex attention's block mask, a sparse one, one of tokens, or None where nothing is hidden.
Mask = BlockMask | SparseMask | TokenMask | Tensor | None


class PreparedMasks(NamedTuple):
    """Masks that are made ahead of a compiled step, by pattern, and the positions of keys (B or 1, S)."""

    masks: dict[str, "Mask"]
    key_positions: Tensor

    def contiguous(self) -> "PreparedMasks":
        """Return the same, which `generate` of transformers 5.23 asks of any mask."""
        return self


# Types of `attention_mask`: marks of real tokens, a finished mask, or finished masks by layer type.
GivenMask = Tensor | dict[str, Tensor] | PreparedMasks | None
# Builds the mask of one pattern from hidden, sizes, layer, padding, rule; pattern and layout for sparse masks.
MaskBuilder = Callable[..., Mask]
# A predicate, and the shortcuts by which a backend needs no mask.
Rule = tuple[Predicate, dict[str, bool | int | None]]


@dataclass
class AttentionMasks:
    """Positions of queries (B or 1, T) and keys (B or 1, S), and one mask for each pattern in use."""

    positions: Tensor
    key_positions: Tensor
    masks: dict[str, Mask]


def build_masks(
    config: StackConfig,
    hidden: Tensor,
    sizes: MaskSizes,
    attention_mask: GivenMask = None,
    packing: Packing = NO_PACKING,
    build: MaskBuilder | None = None,
) -> AttentionMasks:
    """Build the attention masks once a forward, the same way for every backend, or pass through prebuilt ones.

    `attention_mask` (B, S) marks real tokens, from which positions follow without `position_ids`; position ids that
    restart, or `cu_seq_lens_q`, separate documents packed in one row. `build` makes the mask of one pattern, by default
    for the backend of the config.
    """
    position_ids = packing.position_ids
    layers, build = first_layers(config), build or partial(build_mask, str(config._attn_implementation))
    if isinstance(attention_mask, PreparedMasks):
        return masks_from_generate(attention_mask, sizes, position_ids)
    if packing.paged and position_ids is not None:
        return masks_from_paged_cache(config, attention_mask, position_ids)
    finished = finished_masks(config, attention_mask)
    layout = lay_out(hidden, sizes, None if finished else cast("Tensor | None", attention_mask), packing)
    positions, keys = token_positions(hidden, sizes, layout.padding, layout.tokens, position_ids)
    if finished:
        pairs = {
            each: finish(config, hidden, mask, sizes.keys(layers.get(each, 0))[0]) for each, mask in finished.items()
        }
        return AttentionMasks(positions, keys, {**pairs})
    whole = replace(layout, tokens=layout.tokens.int().expand(hidden.shape[0], -1))
    masks: dict[str, Mask] = {}
    for pattern, layer in layers.items():
        if pattern == "state":
            masks[pattern] = TokenMask.of(layout, sizes.index(hidden.device))
            continue
        if pattern == "sliding":
            check_window(config, sizes, layer, layout.padding)
        rule = mask_rule(config, pattern, whole)
        masks[pattern] = build(hidden, sizes, layer, layout.padding, rule, pattern=pattern, layout=layout)
    return AttentionMasks(positions, keys, masks)


def check_window(config: StackConfig, sizes: MaskSizes, layer: int, padding: Tensor | None) -> None:
    """Raise ValueError where padding inside a row has driven tokens out of the cache of a window, which counts it."""
    first, past, window = sizes.keys(layer)[1], sizes.past, config.sliding_window or 0
    if padding is None or not isinstance(past, int) or not can_read_values(padding):
        return
    short = (padding[:, first:past].sum(-1) < window - 1) & padding[:, :first].any(-1) & padding[:, past:].any(-1)
    if short.any():
        raise ValueError(
            f"row {int(short.int().argmax())} of attention_mask has padding inside, and the cache of "
            f"sliding_window={window} dropped tokens for it; start with past_key_values=DynamicCache(), which keeps all"
        )


def finish(config: StackConfig, hidden: Tensor, mask: Tensor | None, keys: int, name: str = "attention_mask") -> Tensor:
    """Return a mask of pairs (B or 1, H or 1, T, S) as booleans or as numbers to add to scores, whatever its type.

    0 and 1 alone, with a 1, keep or drop pairs in any type: added to scores they would hide nothing.
    """
    if config.keeps_state:
        raise ValueError(f"{name} is one of pairs, which kernel={config.kernel!r} never looks at; mark (batch, length)")
    mask = check_finished_mask(name, mask, (*hidden.shape[:2], keys)).to(hidden.device)
    if not mask.is_floating_point():
        check_marks(name, mask)
        return mask.bool()
    # Chosen by the device itself: reading values would stall an accelerator and break a graph.
    kept, lowest = mask == 1, torch.finfo(hidden.dtype).min
    chosen = (kept | (mask == 0)).all() & kept.any()
    added = mask.to(hidden.dtype).clamp(min=lowest)  # the lowest number of a wider type would become infinite
    return torch.where(chosen, torch.zeros_like(added).masked_fill(~kept, lowest), added)


def finished_masks(config: StackConfig, attention_mask: GivenMask) -> dict[str, Tensor | None]:
    """Return the mask of pairs of each pattern, one for all or one for each layer type; none of marks of tokens."""
    kinds = dict(zip(config.layer_patterns, config.layer_types, strict=True))
    if isinstance(attention_mask, dict):
        return {pattern: attention_mask.get(kind) for pattern, kind in kinds.items()}
    pairs = isinstance(attention_mask, Tensor) and attention_mask.ndim == 4
    return {pattern: cast(Tensor, attention_mask) for pattern in kinds} if pairs else {}


def masks_from_paged_cache(config: StackConfig, attention_mask: GivenMask, position_ids: Tensor) -> AttentionMasks:
    """Take over the masks of continuous batching, one for each kind of cache or for all, and positions (1, T)."""
    given = cast(Mask, attention_mask)  # of transformers' making
    masks: dict[str, Mask] = {**finished_masks(config, attention_mask)} or dict.fromkeys(config.layer_patterns, given)
    return AttentionMasks(position_ids, position_ids, masks)


def masks_from_generate(prepared: PreparedMasks, sizes: MaskSizes, position_ids: Tensor | None) -> AttentionMasks:
    """Take over the masks that were made ahead of a compiled step."""
    keys = prepared.key_positions
    positions = keys.index_select(1, sizes.index(keys.device)) if position_ids is None else position_ids
    return AttentionMasks(positions, keys, prepared.masks)


def mask_rule(config: StackConfig, pattern: str, layout: TokenLayout) -> Rule:
    """Return the predicate of one pattern for tokens (B, S), and the shortcuts of backends."""
    tokens, documents = layout.tokens, layout.documents
    chosen = None if pattern == "full" else layout.first(config.num_global_tokens)
    predicates = [PATTERNS[pattern](config, tokens)]
    if pattern == "sliding" and layout.padding is None:  # the same without a table, for all rows at once
        window = config.sliding_window or 0
        predicates = [lambda batch, head, query, key: (query - key).abs() < window]
    if chosen is not None:
        predicates = [touches(chosen.expand(tokens.shape), *predicates)]
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
    implementation: str, hidden: Tensor, sizes: MaskSizes, layer: int, padding: Tensor | None, rule: Rule, **_: object
) -> Mask:
    """Build the mask a backend wants: dense, boolean, a block mask, the marks of real tokens (B, S), or None."""
    if implementation not in ALL_MASK_ATTENTION_FUNCTIONS:
        return None
    predicate, shortcuts = rule
    compiled_step = getattr(sizes.cache, "is_compileable", False) and sizes.length == 1
    keys, first_key = sizes.keys(layer)
    whole = padding is None and sizes.cache is None and keys <= (shortcuts.get("local_size") or keys)
    # PyTorch before 2.13 takes a compiled graph for an exported one, in which transformers masks what the kernel hides.
    compiled = torch.compiler.is_dynamo_compiling() and implementation == "sdpa"
    if compiled and whole and shortcuts["allow_is_causal_skip"]:
        return None
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
        pairs = memory_mask.expand(-1, -1, hidden.shape[1], -1) if memory_mask.shape[2] == 1 else memory_mask
        return finish(config, hidden, pairs, memory.shape[1], "encoder_attention_mask")
    check_memory_mask(memory_mask, memory)
    padding = None if memory_mask is None else memory_mask.to(hidden.device, torch.bool)
    if config.keeps_state:
        return None if padding is None else TokenMask(padding, None)
    rule: Rule = (bidirectional_mask_function, {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": True})
    return build_mask(implementation, hidden, MaskSizes(0, hidden.shape[1], memory.shape[1], None), 0, padding, rule)
