"""Padding removal and windows on a GPU: real tokens in one row, and one call of a kernel for all documents.

On a CPU, where a call costs little and no such kernel exists, `unpadding.py` and `windows.py` take this place.

Shapes: B batch, T tokens, N real tokens of the batch, D hidden_size, H heads, G key-value heads, K head_dim.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from ...configuration.axes import BIAS_POSITIONS, MASKLESS_PATTERNS
from ...configuration.configuration_stack import StackConfig
from ..checks.inputs import check_boundaries, check_memory_mask, check_padding_mask, check_position_ids
from ..context import Memory
from ..execution import Plan, StackInputs, StackParts
from ..kernel import AttentionFunction, computed_dtype
from ..masks.masking import AttentionMasks, Mask, SparseMask
from ..position.hooks import Embedded
from ..position.token_layout import NO_PACKING, Packing, document_starts, first_layers
from .cudnn_first import CudnnPlan
from .unpadding import takes_rows


class VarlenKernel(NamedTuple):
    """A kernel with the signature of `varlen_attn`, the dtypes that it computes, and the work from which it wins.

    `work` counts layers times tokens times hidden_size: below, the host takes longer to pack than the GPU saves.

    Source: Dao 2023, FlashAttention-2, https://arxiv.org/abs/2307.08691
    Shapes: query (N, H, K), key and value (M, G, K), ends 2 x (documents + 1,) -> (N, H, K)
    """

    attend: Callable[..., Any]
    dtypes: tuple[torch.dtype, ...]
    work: float


# The widest heads of FlashAttention.
WIDEST = 256
# By type of device. On an H100 encoders of less work ran slower packed than padded.
VARLEN_KERNELS: dict[str, VarlenKernel] = {}
try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # before torch 2.10
    pass
else:
    if {"scale", "window_size", "enable_gqa"} <= signature(varlen_attn).parameters.keys():
        VARLEN_KERNELS["cuda"] = VarlenKernel(varlen_attn, (torch.bfloat16, torch.float16), 130e6)


@dataclass
class PackedTokens:
    """The real tokens of a batch of `shape` (B, T): their index among all (N,), None for all, and where documents end.

    `ends` (documents + 1,) begins with 0; no document is longer than `longest`.
    """

    index: Tensor | None
    ends: Tensor
    longest: int
    shape: tuple[int, int]

    def pack(self, values: Tensor) -> Tensor:
        """Put the real tokens in one row: (B, T, ...) -> (1, N, ...)."""
        row = values.flatten(0, 1)
        return (row if self.index is None else row.index_select(0, self.index))[None]

    def restore(self, packed: Tensor) -> Tensor:
        """Put them back, with zeros at padding: (1, N, D) -> (B, T, D)."""
        row = packed[0]
        if self.index is not None:
            row = row.new_zeros(self.shape[0] * self.shape[1], row.shape[-1]).index_copy(0, self.index, row)
        return row.unflatten(0, self.shape)

    @property
    def count(self) -> int:
        """The number of real tokens."""
        return self.shape[0] * self.shape[1] if self.index is None else len(self.index)

    @property
    def documents(self) -> int:
        """The number of documents."""
        return len(self.ends) - 1


@dataclass
class VarlenMask(SparseMask):
    """The mask of documents packed in one row, each attending to its keys in a `window` (left, right), or all."""

    kernel: VarlenKernel
    queries: PackedTokens
    keys: PackedTokens
    window: tuple[int, int]

    def attend(self, function: AttentionFunction, module: object, *heads: Any, **options: Any) -> tuple[Tensor, None]:
        """Attend inside all documents at once: (1, H, N, K), 2 x (1, G, N, K) -> (1, N, H, K)."""
        query, key, value = (half_precision(each)[0].transpose(0, 1) for each in heads[:3])
        sizes = (self.queries.ends, self.keys.ends, self.queries.longest, self.keys.longest)
        grouped = query.shape[1] != key.shape[1]
        given = {"scale": options["scaling"], "window_size": self.window, "enable_gqa": grouped}
        mixed = self.kernel.attend(query, key, value, *sizes, **given)
        return mixed[None], None


def half_precision(values: Tensor) -> Tensor:
    """Cast to the dtype of autocast, as `scaled_dot_product_attention` does."""
    return values.to(computed_dtype(values))


def kernel_of(config: StackConfig, device: torch.device, dtype: torch.dtype, *, training: bool) -> VarlenKernel | None:
    """Return the kernel that computes the attention of a stack; None where there is none, or where it lacks a part."""
    kernel = VARLEN_KERNELS.get(device.type)
    covered = (
        not config.keeps_state
        and config.position_word not in BIAS_POSITIONS
        and all(pattern in MASKLESS_PATTERNS for pattern in config.layer_patterns)
        and not config.num_global_tokens
        and not config.attention_sinks
        and config.head_dim % 8 == 0
        and config.head_dim <= WIDEST
        and not (training and (config.attention_dropout or config.drop_path_rate))
    )
    return kernel if covered and kernel is not None and dtype in kernel.dtypes else None


def open_kernel(stack: StackParts, inputs: StackInputs) -> VarlenKernel | None:
    """Return the kernel for these inputs; None where their layers are recorded, cached or hidden from each other."""
    hidden, packing = inputs.embedded.hidden, inputs.packing
    told = packing.global_attention_mask is None and packing.seq_idx is None
    attends = takes_rows(stack, inputs) and not inputs.recorded and told
    dtype = computed_dtype(hidden)
    return kernel_of(stack.config, hidden.device, dtype, training=stack.training) if attends else None


def can_win(stack: StackParts, inputs: StackInputs, kernel: VarlenKernel) -> bool:
    """Return True where tokens may be left out, or windows see few keys, and there is enough to compute."""
    config, (hidden, mask, _), packing = stack.config, inputs.embedded, inputs.packing
    batch, length, _ = hidden.shape
    window = config.sliding_window if "sliding" in config.layer_patterns else None
    told = mask is not None or packing.position_ids is not None
    enough = bool(stack.remove_padding) or config.num_hidden_layers * batch * length * config.hidden_size >= kernel.work
    # Of boundaries any other way makes a mask of all pairs in the row.
    alone = packing.cu_seq_lens_q is not None and mask is None
    return alone or (enough and (told or (window is not None and 2 * window <= length)))


def pack_rows(shape: tuple[int, int], device: torch.device) -> PackedTokens:
    """Put rows without padding behind each other, each of them one document."""
    batch, length = shape
    ends = torch.arange(0, batch * length + 1, length, dtype=torch.int32, device=device)
    return PackedTokens(None, ends, length, shape)


def pack_tokens(hidden: Tensor, mask: Tensor | None, packing: Packing) -> PackedTokens | None:
    """Find the real tokens and the documents of a batch (B, T, D); None where there are none, or a graph cannot know.

    The host waits for the device once, and not at all for rows without padding or with boundaries of their documents.
    """
    shape, device, boundaries = (hidden.shape[0], hidden.shape[1]), hidden.device, packing.cu_seq_lens_q
    if mask is None and boundaries is not None:
        check_boundaries(boundaries, hidden)
        rows = torch.arange(shape[0], device=device)[:, None] * shape[1]  # every row has the documents of the first
        starts = (boundaries[:-1].to(device) + rows).flatten()
        end = starts.new_full((1,), shape[0] * shape[1])
        return PackedTokens(None, torch.cat((starts, end)).int(), shape[1], shape)
    if mask is None and packing.position_ids is None:
        return pack_rows(shape, device)
    if boundaries is not None or torch.compiler.is_compiling():
        return None
    real = torch.ones(shape, dtype=torch.bool, device=device) if mask is None else mask.to(device, torch.bool)
    first = real & (real.cumsum(-1) == 1)
    if packing.position_ids is not None:
        first = first | document_starts(packing.position_ids, real)
    tokens, documents = torch.stack((real.sum(), first.sum())).tolist()
    if not tokens:
        return None
    index = real.flatten().argsort(descending=True, stable=True)[:tokens]
    starts = first.flatten()[index].argsort(descending=True, stable=True)[:documents]
    ends = F.pad(starts, (0, 1), value=tokens).int()
    return PackedTokens(None if tokens == real.numel() else index, ends, shape[1], shape)


def memory_tokens(memory: Memory) -> PackedTokens | None:
    """Find the real tokens of memory (B, S, D); None without one, or with a mask of pairs."""
    hidden, mask = memory.hidden, cast("Tensor | None", memory.mask)
    if hidden is None or (mask is not None and mask.ndim != 2):
        return None
    check_memory_mask(mask, hidden)
    return pack_tokens(hidden, mask, NO_PACKING)


def packed_positions(packed: PackedTokens, position_ids: Tensor | None) -> Tensor:
    """Return the position id of each packed token, or its place in its document: (1, N)."""
    if position_ids is not None:
        return packed.pack(position_ids.expand(packed.shape))
    places = torch.arange(packed.count, device=packed.ends.device)
    documents = torch.searchsorted(packed.ends[1:].long(), places, right=True)
    return (places - packed.ends.index_select(0, documents))[None]


class VarlenBatch(NamedTuple):
    """The real tokens of a batch, those of the memory of cross-attention, and the kernel for them."""

    tokens: PackedTokens
    memory: PackedTokens | None
    kernel: VarlenKernel


class VarlenPlan(Plan):
    """Run the layers on the real tokens of a batch in one row, and attend inside all documents at once."""

    def __init__(self, stack: StackParts, inputs: StackInputs, batch: VarlenBatch) -> None:
        self.packed, self.read, self.kernel = batch
        config, positions = stack.config, packed_positions(self.packed, inputs.packing.position_ids)
        masks: dict[str, Mask] = {}
        for pattern in first_layers(config):
            near = cast(int, config.sliding_window) - 1 if pattern == "sliding" else -1
            masks[pattern] = VarlenMask(self.kernel, self.packed, self.packed, (near, 0 if config.causal else near))
        super().__init__(stack, inputs, AttentionMasks(positions, positions, masks))
        self.row = Embedded(self.packed.pack(inputs.embedded.hidden))

    @classmethod
    def of(cls, stack: StackParts, inputs: StackInputs) -> "Plan | None":
        """Pack the real tokens of a batch and of its memory; return None where padding stays."""
        kernel, (hidden, mask, _), packing = open_kernel(stack, inputs), inputs.embedded, inputs.packing
        if kernel is None or not can_win(stack, inputs, kernel):
            return None
        check_position_ids(hidden, packing.position_ids)
        if mask is not None:
            check_padding_mask(mask, hidden, 0, hidden.shape[1])
        packed, read = pack_tokens(hidden, mask, packing), memory_tokens(inputs.memory)
        apart = inputs.memory.hidden is None or (read and packed and read.documents == packed.documents == len(hidden))
        if packed is None or not apart:
            return None
        whole = packed.index is None and packed.documents == hidden.shape[0] and packing.position_ids is None
        if whole and "sliding" not in stack.config.layer_patterns:  # marks that hide nothing would cost a dense mask
            whole_inputs = replace(inputs, embedded=inputs.embedded._replace(padding_mask=None))
            return CudnnPlan.of(stack, whole_inputs) or Plan(stack, whole_inputs)
        return cls(stack, inputs, VarlenBatch(packed, read, kernel))

    @property
    def embedded(self) -> Embedded:
        return self.row

    def memory(self) -> Memory:
        if self.read is None:
            return Memory()
        hidden = cast(Tensor, self.inputs.memory.hidden)
        return Memory(self.read.pack(hidden), VarlenMask(self.kernel, self.packed, self.read, (-1, -1)))

    def restore(self, hidden: Tensor) -> Tensor:
        return self.packed.restore(hidden)
