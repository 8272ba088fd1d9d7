"""Caches of `generate` with room for more tokens: a step writes its keys and values and copies nothing.

Shapes: B batch, T tokens, G key-value heads, K head_dim.
"""

from collections.abc import Callable
from functools import partial
from typing import cast

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache


class GrowingLayer(DynamicLayer):
    """Hold keys and values in memory with room for more: a step writes into it and copies nothing.

    Shapes: keys and values (B, G, T, K)
    """

    room: tuple[Tensor, Tensor] | None = None
    written: tuple[Tensor, Tensor] | tuple[None, None] = (None, None)

    @property
    def cached(self) -> tuple[Tensor, Tensor]:
        """Keys and values, once there are some."""
        return cast(Tensor, self.keys), cast(Tensor, self.values)

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return super().update(key_states, value_states, *args, **kwargs)
        start = self.get_seq_length()
        end = start + key_states.shape[2]
        room = self.room
        if room is None or not self.is_room_for(end, room):
            if not self.is_initialized:
                self.lazy_initialization(key_states, value_states)
            room = self.room = grown(self.cached[0], key_states, end), grown(self.cached[1], value_states, end)
        keys, values = room
        keys.narrow(2, start, end - start).copy_(key_states)
        values.narrow(2, start, end - start).copy_(value_states)
        self.written = self.keys, self.values = keys.narrow(2, 0, end), values.narrow(2, 0, end)
        return self.written

    def is_room_for(self, end: int, room: tuple[Tensor, Tensor]) -> bool:
        """Return True where the cached tensors are the beginning of memory for `end` tokens."""
        if end > room[0].shape[2]:
            return False
        # Selecting rows replaces the tensors, `crop` leaves a view of the prefix.
        is_written = self.keys is self.written[0] and self.values is self.written[1]
        return is_written or all(map(begins, self.cached, room))

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Let every row go on from that of its beam, where the others stay in place."""
        in_place = self.room is not None and not torch.is_grad_enabled() and beam_idx.device.type == "cpu"
        if not in_place or len(beam_idx) != len(self.cached[0]):
            super().reorder_cache(beam_idx)
            return
        moved = (beam_idx != torch.arange(len(beam_idx))).nonzero()[:, 0]
        for memory in self.cached:
            memory.index_copy_(0, moved, memory.index_select(0, beam_idx[moved]))


class SourceLayer(DynamicLayer):
    """Hold keys and values of a source, which all beams of its row share: no step has to reorder them."""

    def __init__(self, beams: int) -> None:
        super().__init__()
        self.beams = beams

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Leave all in place while beams stay with their source."""
        rows, cached = torch.arange(len(beam_idx), device=beam_idx.device), self.keys
        if cached is None or len(cached) != len(rows) or not torch.equal(beam_idx // self.beams, rows // self.beams):
            super().reorder_cache(beam_idx)


def begins(part: Tensor, room: Tensor) -> bool:
    """Return True where a tensor is the beginning of memory."""
    return part.data_ptr() == room.data_ptr() and part.shape[:2] == room.shape[:2]


def grown(cached: Tensor, new: Tensor, end: int) -> Tensor:
    """Return memory for `end` tokens and more, with the cached ones at its beginning."""
    room = new.new_empty((*new.shape[:2], end + max(end // 4, 256), new.shape[3]))
    if cached.numel():
        room[:, :, : cached.shape[2]] = cached
    return room


def make_room(cache: Cache, beams: int) -> None:
    """Let an empty cache have room for more; one of a source stays where it is for all beams."""
    if isinstance(cache, EncoderDecoderCache):
        exchange_layers(cache.cross_attention_cache, partial(SourceLayer, beams))
        cache = cache.self_attention_cache
    exchange_layers(cache, GrowingLayer)


def exchange_layers(cache: Cache, layer_class: Callable[[], DynamicLayer]) -> None:
    """Exchange the plain dynamic layers of a cache; windows and other kinds stay."""
    if not cache.offloading:
        cache.layers = [layer_class() if type(layer) is DynamicLayer else layer for layer in cache.layers]
