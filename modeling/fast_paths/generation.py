"""Faster steps of `generate`: shorter forwards, weights laid out for a few rows, a cache with room for more tokens.

Shapes: B batch, T tokens, G key-value heads, K head_dim, N outputs and M inputs of a linear map, R rows.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.activations import NewGELUActivation
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache

from ..attention import CrossAttention, SelfAttention
from .decoding_step import DecodingStep, can_step, cross_attention_step, self_attention_step

# One row reads a transposed weight faster where there are so many outputs for each input: that of a head.
WIDE = 8
# With fewer rows packing wins nothing, and with more the products are large enough by themselves.
PACKED_ROWS = range(4, 65)
# A copy is made at this call in succession with as many rows: it takes as long as it saves in a few.
PATIENCE = 4


class GrowingLayer(DynamicLayer):
    """Hold keys and values in memory with room for more, where a step writes its own and copies nothing.

    Shapes: keys and values (B, G, T, K)
    """

    room: tuple[Tensor, Tensor] | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            updated: tuple[Tensor, Tensor] = super().update(key_states, value_states, *args, **kwargs)
            return updated
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        cached: Any = (self.keys, self.values)
        start = self.get_seq_length()
        end = start + key_states.shape[2]
        # Rows that were left out have put other tensors in their place.
        if self.room is None or not all(map(begins, cached, self.room, (end, end))):
            self.room = grown(cached[0], key_states, end), grown(cached[1], value_states, end)
        for memory, new in zip(self.room, (key_states, value_states), strict=True):
            memory[:, :, start:end] = new
        self.keys, self.values = self.room[0][:, :, :end], self.room[1][:, :, :end]
        return self.keys, self.values

    def reorder_cache(self, beam_idx: Any) -> None:
        """Let every row go on from that of its beam, where the others stay in place."""
        cached: Any = (self.keys, self.values)
        in_place = self.room is not None and not torch.is_grad_enabled() and beam_idx.device.type == "cpu"
        if not in_place or len(beam_idx) != len(cached[0]):
            super().reorder_cache(beam_idx)
            return
        moved = (beam_idx != torch.arange(len(beam_idx))).nonzero()[:, 0]
        for memory in cached:
            memory.index_copy_(0, moved, memory.index_select(0, beam_idx[moved]))


class SourceLayer(DynamicLayer):
    """Hold keys and values of a source, which all beams of its row share: no step has to reorder them."""

    def __init__(self, beams: int) -> None:
        super().__init__()
        self.beams = beams

    def reorder_cache(self, beam_idx: Any) -> None:
        """Leave all in place while beams stay with their source."""
        rows, cached = torch.arange(len(beam_idx), device=beam_idx.device), self.keys
        if cached is None or len(cached) != len(rows) or not torch.equal(beam_idx // self.beams, rows // self.beams):
            super().reorder_cache(beam_idx)


def begins(part: Tensor, room: Tensor, end: int) -> bool:
    """Return True where a tensor is the beginning of one with room for `end` tokens."""
    return part.data_ptr() == room.data_ptr() and part.shape[:2] == room.shape[:2] and end <= room.shape[2]


def grown(cached: Tensor, new: Tensor, end: int) -> Tensor:
    """Return memory for `end` tokens and more, which begins with those that are cached."""
    room = new.new_empty((*new.shape[:2], end + max(end // 4, 256), new.shape[3]))
    if cached.numel():
        room[:, :, : cached.shape[2]] = cached
    return room


class WeightCopy:
    """Compute a linear map's product from a copy of its weight that is laid out for a few rows; the map stays as it is.

    One row times a wide weight (a head) reads a transposed copy 1.1 to 2 times as fast; 4 to 64 rows read a weight that
    MKL has packed 1.2 to 3 times as fast. A transposed copy takes the memory of the weight, a packed one up to twice
    that. It is made when steps repeat, and is there for later calls of `generate` while the weight is the same.

    Shapes: (..., M) -> (..., N)
    """

    def __init__(self) -> None:
        self.seen, self.calls = 0, 0
        # The rows that a copy is for and the copy, exchanged as one: other threads may generate with other batches.
        self.laid_out = (0, torch.empty(0))
        self.probe = torch.empty(0)

    def product(self, linear: nn.Linear, hidden: Tensor) -> Tensor:
        """Compute what the forward of `linear` does."""
        rows = hidden.numel() // max(hidden.shape[-1], 1)
        copied, copy = self.laid_out
        if rows != copied:
            copied, copy = self.make(linear, rows)
        if rows != copied or not is_plain(hidden):
            return F.linear(hidden, linear.weight, linear.bias)
        if rows > 1:
            packed: Tensor = torch.ops.mkl._mkl_linear.default(hidden, copy, linear.weight, linear.bias, rows)
            return packed
        product = torch.mm(hidden.reshape(1, -1), copy).view(*hidden.shape[:-1], -1)
        return product if linear.bias is None else product + linear.bias

    def make(self, linear: nn.Linear, rows: int) -> tuple[int, Tensor]:
        """Copy the weight once enough calls in succession had as many rows; return the copy there is, and its rows."""
        if rows == 1 and linear.out_features < WIDE * linear.in_features:
            vars(linear).pop("forward", None)  # nothing is won, so the other steps take the shorter way
            return self.laid_out
        if rows > 1 and not (rows in PACKED_ROWS and hasattr(torch.ops.mkl, "_mkl_linear")):
            return self.laid_out
        self.calls = self.calls + 1 if rows == self.seen else 1
        self.seen = rows
        if self.calls < PATIENCE:
            return self.laid_out
        weight = linear.weight.detach()
        copy = weight.t().contiguous() if rows == 1 else torch.ops.mkl._mkl_reorder_linear_weight(weight, rows)
        self.probe, self.laid_out = probe(weight), (rows, copy)
        return rows, copy

    def is_of(self, linear: nn.Linear) -> bool:
        """Return True unless the weight has changed; versions do not tell, for what is written to `.data` has none."""
        return not self.laid_out[0] or torch.equal(self.probe, probe(linear.weight.detach()))


def probe(weight: Tensor) -> Tensor:
    """Return a number for each output that a change of its weights changes, at the cost of one step: (N, M) -> (N,)."""
    return torch.mv(weight, torch.linspace(1, 2, weight.shape[1]))


def is_plain(hidden: Tensor) -> bool:
    """Return True where nothing but numbers is computed: no gradients, no graph, no other precision."""
    traced = torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu")
    return not traced and type(hidden) is Tensor and hidden.dtype == torch.float32


def short_gelu(module: NewGELUActivation, hidden: Tensor) -> Tensor:
    """Compute GELU by a hyperbolic tangent in one kernel instead of seven; equal to the last digits."""
    return F.gelu(hidden, approximate="tanh") if is_plain(hidden) else NewGELUActivation.forward(module, hidden)


def can_copy(linear: nn.Module) -> bool:
    """Return True for a linear map of stock PyTorch whose weight is on the CPU in single precision."""
    weight = linear.weight if type(linear) is nn.Linear else None
    return type(weight) is nn.Parameter and weight.device.type == "cpu" and weight.dtype == torch.float32


def is_bare(module: nn.Module) -> bool:
    """Return True where nothing is around a module: no hook and no forward of its own."""
    return not ("forward" in vars(module) or module._forward_hooks or module._forward_pre_hooks)


# The copies of each map, as long as it lives; no part of a model, so nobody saves, moves or copies them.
COPIES: WeakKeyDictionary[nn.Linear, WeightCopy] = WeakKeyDictionary()


def shorter_forwards(model: nn.Module) -> dict[nn.Module, Callable[..., Any]]:
    """Return a shorter forward for each module of a model that has one and nothing around it."""
    shorter: dict[type[nn.Module], Any] = {
        NewGELUActivation: short_gelu,
        SelfAttention: self_attention_step,
        CrossAttention: cross_attention_step,
    }
    bare: list[Any] = [module for module in model.modules() if is_bare(module)]
    forwards: dict[nn.Module, Any] = {
        each: partial(shorter[type(each)], each) for each in bare if type(each) in shorter
    }
    for linear in filter(can_copy, bare):
        if linear not in COPIES or not COPIES[linear].is_of(linear):
            COPIES[linear] = WeightCopy()
        forwards[linear] = partial(COPIES[linear].product, linear)
    for stack in filter(can_step, bare):
        if all(map(is_bare, stack.modules())):
            forwards[stack] = DecodingStep(stack)
    return forwards


@contextmanager
def short_forwards(*models: nn.Module | None) -> Iterator[None]:
    """Let modules take the shortest way: linear maps from copies of their weights, which must not change meanwhile."""
    given = [shorter_forwards(model) for model in models if model is not None]
    for forwards in given:
        for module, forward in forwards.items():
            module.forward = forward
    try:
        yield
    finally:
        for module in (module for forwards in given for module in forwards):
            vars(module).pop("forward", None)


class FastGenerationMixin:
    """Generate as transformers does, with the same tokens, from weights laid out for a few rows.

    `lay_out_weights = False` on a model forbids copies of its weights.
    """

    lay_out_weights: bool = True

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Generate as transformers does; meanwhile no weight may change."""
        parent: Any = super()
        with self.laid_out(kwargs.get("assistant_model")):
            return parent.generate(*args, **kwargs)

    def laid_out(self, *others: nn.Module | None) -> AbstractContextManager[None]:
        """Lay out the weights of this model and of others that help it, unless that is forbidden."""
        model: Any = self
        return short_forwards(model, *others) if self.lay_out_weights else nullcontext()

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Prepare the cache as transformers does, with room for what follows; windows and other kinds stay."""
        parent: Any = super()
        given = model_kwargs.get("past_key_values")
        parent._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)
        cache = model_kwargs.get("past_key_values")
        if given is None and cache is not None:
            if isinstance(cache, EncoderDecoderCache):
                exchange_layers(cache.cross_attention_cache, partial(SourceLayer, generation_config.num_beams or 1))
                cache = cache.self_attention_cache
            exchange_layers(cache, GrowingLayer)


def exchange_layers(cache: Cache, layer_class: Callable[[], DynamicLayer]) -> None:
    """Exchange the layers of a cache that nothing else is known of; windows and other kinds stay."""
    if not cache.offloading:
        cache.layers = [layer_class() if type(layer) is DynamicLayer else layer for layer in cache.layers]
