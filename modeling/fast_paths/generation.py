"""Faster steps of `generate`: shorter forwards, weights laid out for a few rows, a cache with room for more tokens.

Shapes: B batch, T tokens, G key-value heads, K head_dim, N outputs and M inputs of a linear map, R rows.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache

from ..checks.keywords import CACHE
from ..kernels.state_cache import hold_states
from .decoding_step import DecodingStep, can_step
from .weight_copies import MOST_COPIED, WIDE, LinearStep, can_copy


class GrowingLayer(DynamicLayer):
    """Hold keys and values in memory with room for more, where a step writes its own and copies nothing.

    Shapes: keys and values (B, G, T, K)
    """

    room: tuple[Tensor, Tensor] | None = None
    written: tuple[Any, Any] = (None, None)

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return super().update(key_states, value_states, *args, **kwargs)
        start = self.get_seq_length()
        end = start + key_states.shape[2]
        if not self.is_room_for(end):
            if not self.is_initialized:
                self.lazy_initialization(key_states, value_states)
            cached: Any = (self.keys, self.values)
            self.room = grown(cached[0], key_states, end), grown(cached[1], value_states, end)
        memory: Any = self.room
        memory[0].narrow(2, start, end - start).copy_(key_states)
        memory[1].narrow(2, start, end - start).copy_(value_states)
        self.written = self.keys, self.values = memory[0].narrow(2, 0, end), memory[1].narrow(2, 0, end)
        return self.written

    def is_room_for(self, end: int) -> bool:
        """Return True where what is cached lies at the beginning of memory for `end` tokens."""
        if self.room is None or end > self.room[0].shape[2]:
            return False
        cached: Any = (self.keys, self.values)
        # Rows that were left out have put other tensors in their place, those that were cropped a beginning.
        return cached[0] is self.written[0] and cached[1] is self.written[1] or all(map(begins, cached, self.room))

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


def begins(part: Tensor, room: Tensor) -> bool:
    """Return True where a tensor is the beginning of memory."""
    return part.data_ptr() == room.data_ptr() and part.shape[:2] == room.shape[:2]


def grown(cached: Tensor, new: Tensor, end: int) -> Tensor:
    """Return memory for `end` tokens and more, which begins with those that are cached."""
    room = new.new_empty((*new.shape[:2], end + max(end // 4, 256), new.shape[3]))
    if cached.numel():
        room[:, :, : cached.shape[2]] = cached
    return room


def is_bare(module: nn.Module) -> bool:
    """Return True where nothing is around a module: no hook and no forward of its own."""
    return not ("forward" in vars(module) or module._forward_hooks or module._forward_pre_hooks)


def shorter_forwards(model: nn.Module) -> dict[nn.Module, Callable[..., Any]]:
    """Return a shorter forward for each module of a model that has one and nothing around it."""
    bare: list[Any] = [module for module in model.modules() if is_bare(module)]
    linears = list(filter(can_copy, bare))
    wide = 1 if sum(each.weight.nbytes for each in linears) <= MOST_COPIED else WIDE
    forwards: dict[nn.Module, Any] = {each: LinearStep(each, wide) for each in linears}
    for stack in filter(can_step, bare):
        if all(map(is_bare, stack.modules())):
            forwards[stack] = DecodingStep(stack, wide)
    return forwards


@contextmanager
def short_forwards(*models: nn.Module | None) -> Iterator[None]:
    """Let modules take the shortest way: linear maps from copies of their weights, which must not change meanwhile."""
    given = [model for model in models if model is not None]
    for module, forward in (pair for model in given for pair in shorter_forwards(model).items()):
        module.forward = forward
    try:
        yield
    finally:
        for model in given:
            remove_short_forwards(model)


def remove_short_forwards(model: nn.Module) -> None:
    """Let modules take their own forwards again."""
    for module in model.modules():
        if isinstance(vars(module).get("forward"), (DecodingStep, LinearStep)):
            vars(module).pop("forward", None)  # another thread may have been first


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

    def get_compiled_call(self, *args: Any, **kwargs: Any) -> Any:
        """Return the compiled call: of the modules' own forwards, which stay the same for later calls."""
        model: Any = self
        parent: Any = super()
        remove_short_forwards(model)
        return parent.get_compiled_call(*args, **kwargs)

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Prepare the cache as transformers does, with room for what follows; windows and other kinds stay."""
        parent: Any = super()
        given = model_kwargs.get(CACHE)
        parent._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)
        cache = model_kwargs.get(CACHE)
        model: Any = self
        hold_states(model.config.get_text_config(decoder=True), cache)
        if given is None and cache is not None:
            if generation_config.is_assistant:  # its layers may be others than those that were told
                cache.activate_past_recording()
            if isinstance(cache, EncoderDecoderCache):
                exchange_layers(cache.cross_attention_cache, partial(SourceLayer, generation_config.num_beams or 1))
                cache = cache.self_attention_cache
            exchange_layers(cache, GrowingLayer)


def exchange_layers(cache: Cache, layer_class: Callable[[], DynamicLayer]) -> None:
    """Exchange the layers of a cache that nothing else is known of; windows and other kinds stay."""
    if not cache.offloading:
        cache.layers = [layer_class() if type(layer) is DynamicLayer else layer for layer in cache.layers]
