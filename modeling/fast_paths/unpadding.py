"""Padding removal: all documents of a batch in one row without padding, and attention inside each document.

Position encodings and patterns act on positions and places in the padded batch.

Shapes: B batch, T tokens, S keys, N real tokens of the batch, D hidden_size, H heads, G key-value heads, K head_dim.
"""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from ...configuration.axes import BIAS_POSITIONS, DISENTANGLED_POSITIONS
from ...configuration.configuration_stack import StackConfig
from ..checks.inputs import can_read_values, check_memory_mask
from ..context import Memory
from ..execution import Plan, StackInputs, StackParts
from ..kernel import AttentionFunction, by_mask
from ..masks.masking import AttentionMasks, Mask, SparseMask, mask_rule
from ..position.hooks import Embedded
from ..position.token_layout import TokenLayout, first_layers, lay_out, token_positions
from .window_attention import TokenRange, WindowMask
from .windows import is_sparse, window_mask

# Floating-point operations in the time that a call of attention takes to start: 25 microseconds at 180 GFLOP/s.
CALL = 4.5e6


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
class DocumentMask(SparseMask):
    """The mask of documents packed in one row, each of which attends to itself.

    `masks` holds the mask inside each (1, 1, T, S), None where it sees all keys or, in causal attention, all before.
    """

    queries: Documents
    keys: Documents
    masks: list[Tensor | WindowMask | None]

    def attend(self, function: AttentionFunction, module: object, *heads: Any, **options: Any) -> tuple[Tensor, None]:
        """Call attention for each document: (1, H, N, K), 2 x (1, G, N, K), bias (1, H, T, T) -> (1, N, H, K)."""
        bias, sizes = options.pop("position_bias", None), (self.queries.lengths, self.keys.lengths, self.keys.lengths)
        documents = zip(*(each.split(size, dim=2) for each, size in zip(heads[:3], sizes, strict=True)), strict=True)
        mixed = []
        for document, own in zip(documents, self.masks, strict=True):
            queries, keys = document[0].shape[2], document[1].shape[2]
            options["position_bias"] = None if bias is None else bias[:, :, :queries, :keys]
            attend = by_mask(function, own)
            mixed.append(attend(module, *document, own, **options)[0])
        return torch.cat(mixed, dim=1), None


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


def takes_rows(stack: StackParts, inputs: StackInputs) -> bool:
    """Return True where tokens may lie in one row: texts without a cache, by the backend whose functions take it."""
    _, mask, grid = inputs.embedded
    whole = mask is None or (isinstance(mask, Tensor) and mask.ndim == 2)
    alone = inputs.sizes.cache is None and grid is None and inputs.memory.position is None
    whole = whole and getattr(stack.config, "pooling", None) != "last"  # it reads padding
    return stack.remove_padding is not False and alone and whole and inputs.backend == "sdpa"


def can_remove(stack: StackParts, inputs: StackInputs) -> bool:
    """Return True where the layers can run on documents: on a CPU, with nothing recorded of them.

    Packed, all rows of a batch are one, whose branches stochastic depth would drop together.
    """
    config, (hidden, mask, _), packing = stack.config, inputs.embedded, inputs.packing
    return (
        takes_rows(stack, inputs)
        and (mask is not None or packing.position_ids is not None or packing.cu_seq_lens_q is not None)
        and can_read_values(hidden)
        and not config.keeps_state
        and not (config.attention_sinks or config.position_word in DISENTANGLED_POSITIONS)
        and not inputs.options.get("output_hidden_states", config.output_hidden_states)
        and not (config.position_word in BIAS_POSITIONS and packing.position_ids is not None)
        and not (stack.training and config.drop_path_rate)
    )


def is_faster(config: StackConfig, documents: Documents) -> bool:
    """Return True where a layer saves more work than the calls of attention, one for each document, take to start."""
    batch, length = documents.shape
    weights = config.hidden_size * (4 * config.hidden_size + 2 * config.intermediate_size)
    tokens = batch * length - len(documents.index)
    pairs = batch * length**2 - sum(size**2 for size in documents.lengths)
    return 2 * tokens * weights + 4 * pairs * config.hidden_size > len(documents.lengths) * CALL


def document_masks(config: StackConfig, documents: Documents, layout: TokenLayout, positions: Tensor) -> AttentionMasks:
    """Build the masks of packed documents, whose rules count the real tokens of each."""
    tokens = documents.pack(layout.tokens.int().expand(documents.shape))
    packed = TokenLayout(None, tokens, None, None if layout.marked is None else documents.pack(layout.marked))
    row, places = torch.zeros(1, dtype=torch.long), torch.arange(len(documents.index)).split(documents.lengths)
    masks: dict[str, Mask] = {}
    for pattern in first_layers(config):
        predicate, shortcuts = mask_rule(config, pattern, packed)
        plain = shortcuts["allow_is_causal_skip"] or shortcuts["allow_is_bidirectional_skip"]
        window = shortcuts["local_size"]
        own: list[Tensor | WindowMask | None] = []
        for place in places:
            start, length = int(place[0]), len(place)
            if plain and (window is None or length <= window):
                own.append(None)
                continue
            near = window_mask(config, pattern, predicate, packed, TokenRange(start, length, start, length))
            own.append(near or cast(Tensor, predicate(row, row, place[:, None], place))[None, None])
        masks[pattern] = DocumentMask(documents, documents, own)
    longest = torch.arange(max(documents.lengths), device=positions.device)[None]
    return AttentionMasks(positions, longest, masks)


def has_large_bias(config: StackConfig, documents: Documents) -> bool:
    """Return True where scores get a bias that only chunks keep from growing with the square of a document's length."""
    if config.position_word not in BIAS_POSITIONS:
        return False
    span = TokenRange(0, max(documents.lengths), 0, max(documents.lengths))
    return any(is_sparse(config, pattern, span) for pattern in config.layer_patterns)


class DocumentPlan(Plan):
    """Run the layers on the real tokens of a batch in one row, and attend inside each document."""

    def __init__(self, stack: StackParts, inputs: StackInputs, batch: tuple[Documents, AttentionMasks, Memory]) -> None:
        self.documents, masks, self.packed_memory = batch
        super().__init__(stack, inputs, masks)
        self.packed = Embedded(self.documents.pack(inputs.embedded.hidden))

    @classmethod
    def of(cls, stack: StackParts, inputs: StackInputs) -> "DocumentPlan | None":
        """Pack the real tokens of a batch and of its memory; return None where padding stays."""
        if not can_remove(stack, inputs):
            return None
        config, (hidden, padding_mask, _), sizes = stack.config, inputs.embedded, inputs.sizes
        layout = lay_out(hidden, sizes, padding_mask, inputs.packing)
        documents = locate_documents(layout, (hidden.shape[0], hidden.shape[1]))
        if not documents.lengths or documents.lengths == [hidden.shape[1]] * len(hidden):
            return None
        if has_large_bias(config, documents) or not (stack.remove_padding or is_faster(config, documents)):
            return None
        packed = pack_memory(documents, *inputs.memory[:2])  # type: ignore[arg-type]
        if packed is None:
            return None
        positions, _ = token_positions(hidden, sizes, layout.padding, layout.tokens, inputs.packing.position_ids)
        masks = document_masks(config, documents, layout, documents.pack(positions.expand(hidden.shape[:2])))
        return cls(stack, inputs, (documents, masks, packed))

    @property
    def embedded(self) -> Embedded:
        return self.packed

    def memory(self) -> Memory:
        return self.packed_memory

    def bias(self, pattern: str, layer: int) -> Tensor | None:
        # Documents count from 0: shorter ones use a corner of the bias of the longest.
        longest = self.masks.key_positions
        return self.stack.position.bias(longest, longest)

    def restore(self, hidden: Tensor) -> Tensor:
        return self.documents.restore(hidden)


def pack_memory(documents: Documents, memory: Tensor | None, mask: Tensor | None) -> Memory | None:
    """Pack the memory of cross-attention; return None unless each row is one document with one memory."""
    if memory is None:
        return Memory()
    if mask is not None and mask.ndim != 2:
        return None
    check_memory_mask(mask, memory)
    real = torch.ones(memory.shape[:2], dtype=torch.bool) if mask is None else mask.bool()
    read = locate_documents(TokenLayout(real, real, None), (memory.shape[0], memory.shape[1]))
    rows = (documents.index // documents.shape[1]).unique().tolist()
    if not len(documents.lengths) == len(rows) == len(read.lengths) == len(memory):
        return None
    return Memory(read.pack(memory), DocumentMask(documents, read, [None] * len(rows)))
