"""Padding removal: all documents of a batch in one row without padding, and attention inside each document.

Nothing is then computed for padding, and no score between documents. Every position encoding and pattern is what it is
with padding: each acts on positions and places in the padded batch.

Shapes: B batch, T tokens, S keys, N real tokens of the batch, D hidden_size, H heads, G key-value heads, K head_dim.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from ...configuration.axes import BIAS_POSITIONS, STATE_KERNELS
from ...configuration.configuration_stack import StackConfig
from ..checks.inputs import can_read_values, check_memory_mask, check_position_ids
from ..masking import (
    AttentionMasks,
    DocumentMask,
    Documents,
    GivenMask,
    Mask,
    build_masks,
    build_memory_mask,
    mask_rule,
)
from ..position.hooks import Embedded
from ..position.token_layout import MaskSizes, TokenLayout, first_layers, lay_out, token_positions
from .one_token import one_token_masks
from .window_attention import attend_in_windows
from .windows import TokenRange, WindowMask, is_sparse, window_mask

# Floating-point operations in the time that a call of attention takes to start: 25 microseconds at 180 GFLOP/s.
CALL = 4.5e6


class DocumentMasks(AttentionMasks):
    """Positions (1, N) of packed tokens, (1, S) of the longest document's, and a mask by document for each pattern."""

    def compared(self, sizes: MaskSizes, pattern: str, layer: int) -> tuple[Tensor, Tensor]:
        # Documents count from 0, so one bias has those of all in its corner.
        return self.key_positions, self.key_positions


def locate_documents(layout: TokenLayout, shape: tuple[int, int]) -> Documents:
    """Return the documents of a batch of (B, T) tokens: a row each, or several where they are packed in it."""
    batch, length = shape
    documents = torch.arange(batch, device=layout.tokens.device)[:, None].expand(shape) * length
    if layout.documents is not None:
        documents = documents + layout.documents
    documents = documents.flatten()
    if layout.padding is None:
        index = torch.arange(batch * length, device=documents.device)
    else:
        index = layout.padding.flatten().nonzero()[:, 0]
    lengths: list[int] = documents[index].unique_consecutive(return_counts=True)[1].tolist()
    return Documents(index, lengths, shape)


def can_remove(stack: Any, embedded: Embedded, past: object, position_ids: Tensor | None, **kwargs: Any) -> bool:
    """Return True where the layers can run on documents: on a CPU, without a cache, with nothing recorded of them.

    Packed, all rows of a batch are one, whose branches stochastic depth would drop together.
    """
    config, mask = stack.config, embedded.padding_mask
    return (
        stack.remove_padding is not False
        and past is None
        and embedded.grid is None
        and kwargs.get("encoder_position_embeddings") is None
        and (mask is None or (isinstance(mask, Tensor) and mask.ndim == 2))
        and (mask is not None or position_ids is not None or kwargs.get("cu_seq_lens_q") is not None)
        and can_read_values(embedded.hidden)
        and kwargs["attention_implementation"] == "sdpa"
        and config.kernel not in STATE_KERNELS
        and not kwargs.get("output_hidden_states", config.output_hidden_states)
        and not (config.position in BIAS_POSITIONS and position_ids is not None)
        and not (stack.training and config.drop_path_rate)
    )


def is_faster(config: StackConfig, documents: Documents) -> bool:
    """Return True where a layer saves more work than the calls of attention, one for each document, take to start."""
    batch, length = documents.shape
    weights = config.hidden_size * (4 * config.hidden_size + 2 * config.intermediate_size)
    tokens = batch * length - len(documents.index)
    pairs = batch * length**2 - sum(size**2 for size in documents.lengths)
    return 2 * tokens * weights + 4 * pairs * config.hidden_size > len(documents.lengths) * CALL


def document_masks(config: StackConfig, documents: Documents, layout: TokenLayout, positions: Tensor) -> DocumentMasks:
    """Build the masks of packed documents from the rules for the padded batch, at the places of its real tokens."""
    whole = TokenLayout(None, layout.tokens.expand(documents.shape), None, layout.marked)
    places = documents.index.split(documents.lengths)
    masks: dict[str, Mask] = {}
    for pattern in first_layers(config):
        predicate, shortcuts = mask_rule(config, pattern, whole)
        plain = shortcuts["allow_is_causal_skip"] or shortcuts["allow_is_bidirectional_skip"]
        window = shortcuts["local_size"]
        own: list[Tensor | WindowMask | None] = []
        for place in places:
            row, column = place[:1] // documents.shape[1], place % documents.shape[1]
            reach, length = int(column[-1] - column[0]), len(place)
            if plain and (window is None or reach < window):
                own.append(None)
                continue
            near = window_of_document(config, pattern, whole.part(row, column)) if reach + 1 == length else None
            seen: Any = None if near else predicate(row, row, column[:, None], column[None])
            own.append(near or seen[None, None])
        masks[pattern] = DocumentMask(documents, documents, own)
    longest = torch.arange(max(documents.lengths), device=positions.device)[None]
    return DocumentMasks(positions, longest, masks)


def window_of_document(config: StackConfig, pattern: str, layout: TokenLayout) -> WindowMask | None:
    """Build the window mask of a document whose tokens (1, T) follow each other."""
    length = layout.tokens.shape[1]
    predicate, _ = mask_rule(config, pattern, layout)
    return window_mask(config, pattern, predicate, layout, TokenRange(0, length, 0, length))


def has_large_bias(config: StackConfig, documents: Documents) -> bool:
    """Return True where scores get a bias that only chunks keep from growing with the square of a document's length."""
    if config.position not in BIAS_POSITIONS:
        return False
    span = TokenRange(0, max(documents.lengths), 0, max(documents.lengths))
    return any(is_sparse(config, pattern, span) for pattern in config.layer_patterns)


@dataclass
class LayerInputs:
    """The inputs of a stack's layers, with or without padding, and the way back for their output.

    Shapes: embedded.hidden (B, T, D), memory (B, S, D) or None; without padding (1, N, D) and (1, its real tokens, D)
    """

    embedded: Embedded
    masks: AttentionMasks
    memory: tuple[Tensor | None, Mask]
    documents: Documents | None = None

    def restore(self, hidden: Tensor) -> Tensor:
        """Put padding back that was removed: (B, T, D) or (1, N, D) -> (B, T, D)."""
        return hidden if self.documents is None else self.documents.restore(hidden)


def engine_masks(
    config: StackConfig,
    hidden: Tensor,
    sizes: MaskSizes,
    attention_mask: GivenMask,
    position_ids: Tensor | None,
    **kwargs: Any,
) -> AttentionMasks | None:
    """Return no masks for a backend that takes none, as those of serving engines; None for any other.

    An engine keeps the cache and knows the sequences of a row itself. To look for them would read the positions, which
    an engine that records a step on a GPU cannot let happen.
    """
    wanted = sizes.cache is not None or kwargs["attention_implementation"] in ALL_MASK_ATTENTION_FUNCTIONS
    if wanted or attention_mask is not None or position_ids is None:
        return None
    check_position_ids(hidden, position_ids)
    positions = position_ids.long()
    return AttentionMasks(positions, positions, dict.fromkeys(first_layers(config)))


def keep_padding(
    config: StackConfig,
    embedded: Embedded,
    sizes: MaskSizes,
    position_ids: Tensor | None,
    memory: tuple[Tensor | None, Tensor | None],
    **kwargs: Any,
) -> LayerInputs:
    """Build the masks for a batch as it is, and for the memory that cross-attention reads."""
    hidden, mask = embedded.hidden, None
    given = (config, hidden, sizes, embedded.padding_mask, position_ids)
    masks = one_token_masks(*given, **kwargs) or engine_masks(*given, **kwargs) or build_masks(*given, **kwargs)
    if memory[0] is not None:
        implementation = kwargs["attention_implementation"]
        mask = build_memory_mask(config, implementation, hidden, memory[0], memory[1])
    return LayerInputs(embedded, masks, (memory[0], mask))


def remove_padding(
    stack: Any,
    embedded: Embedded,
    sizes: MaskSizes,
    position_ids: Tensor | None,
    memory: tuple[Tensor | None, Tensor | None],
    **kwargs: Any,
) -> LayerInputs | None:
    """Pack the real tokens of a batch, and of what cross-attention reads; return None where padding stays."""
    if not can_remove(stack, embedded, sizes.cache, position_ids, **kwargs):
        return None
    config, hidden = stack.config, embedded.hidden
    padding_mask: Any = embedded.padding_mask
    position_ids = None if position_ids is None else position_ids.long()
    layout = lay_out(hidden, sizes, padding_mask, position_ids, **kwargs)
    documents = locate_documents(layout, (hidden.shape[0], hidden.shape[1]))
    if not documents.lengths or documents.lengths == [hidden.shape[1]] * len(hidden):
        return None
    if has_large_bias(config, documents) or not (stack.remove_padding or is_faster(config, documents)):
        return None
    packed_memory = pack_memory(documents, *memory)
    if packed_memory is None:
        return None
    positions, _ = token_positions(hidden, sizes, layout.padding, layout.tokens, position_ids)
    masks = document_masks(config, documents, layout, documents.pack(positions.expand(hidden.shape[:2])))
    return LayerInputs(Embedded(documents.pack(hidden)), masks, packed_memory, documents)


def pack_memory(
    documents: Documents, memory: Tensor | None, mask: Tensor | None
) -> tuple[Tensor | None, DocumentMask | None] | None:
    """Pack what cross-attention reads; return None unless each row is one document with memory of its own."""
    if memory is None:
        return None, None
    if mask is not None and mask.ndim != 2:
        return None
    check_memory_mask(mask, memory)
    real = torch.ones(memory.shape[:2], dtype=torch.bool) if mask is None else mask.bool()
    read = locate_documents(TokenLayout(real, real, None), (memory.shape[0], memory.shape[1]))
    rows = (documents.index // documents.shape[1]).unique().tolist()
    if not len(documents.lengths) == len(rows) == len(read.lengths) == len(memory):
        return None
    return read.pack(memory), DocumentMask(documents, read, [None] * len(rows))


def attend_in_documents(
    attend: Callable[..., tuple[Tensor, Tensor | None]], module: Any, *heads: Tensor, mask: DocumentMask, **kwargs: Any
) -> Tensor:
    """Call attention for each document: (1, H, N, K), 2 x (1, G, N, K), bias (1, H, T, T) -> (1, N, H, K)."""
    bias = kwargs.pop("position_bias")
    sizes = (mask.queries.lengths, mask.keys.lengths, mask.keys.lengths)
    documents = zip(*(each.split(size, dim=2) for each, size in zip(heads, sizes, strict=True)), strict=True)
    mixed = []
    for document, own in zip(documents, mask.masks, strict=True):
        queries, keys = document[0].shape[2], document[1].shape[2]
        own_bias = None if bias is None else bias[:, :, :queries, :keys]
        if isinstance(own, WindowMask):
            mixed.append(attend_in_windows(attend, module, *document, mask=own, **kwargs))
        else:
            mixed.append(attend(module, *document, own, position_bias=own_bias, **kwargs)[0])
    return torch.cat(mixed, dim=1)
