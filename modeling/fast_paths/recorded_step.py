"""Steps of generation that an accelerator records once and repeats: the host starts one graph, not hundreds of kernels.

Shapes: B batch, S cached tokens, D hidden_size.
"""

from collections.abc import Callable
from threading import Lock
from typing import Any, cast
from weakref import ReferenceType, WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, StaticCache, StaticLayer
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from ..checks.inputs import check_padding_mask, check_position_ids
from ..checks.keywords import cache_field
from ..kernels.growing_cache import GrowingLayer, begins
from ..stack import Stack
from .stack_step import GIVEN, StackStep, is_one_token, stack_steps

# A recording holds so many tokens, or a multiple; is made at this step in succession; and a stack has no more of them.
TOKENS, PATIENCE, MOST = 256, 4, 4

Step = Callable[[], Tensor]


def record_on_cuda(step: Step) -> Step:
    """Record a step as a CUDA graph, after steps that let libraries choose kernels and take memory."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = step()

    def replay() -> Tensor:
        graph.replay()
        return output

    return replay


# By type of device.
RECORDERS: dict[str, Callable[[Step], Step]] = {"cuda": record_on_cuda}


class Recording:
    """A recorded step of a stack, with memory for the keys and values of one cache, its `owner`, at a time."""

    def __init__(self, stack: Stack, cache: Cache, ids: Tensor, position_ids: Tensor | None, room: int) -> None:
        self.owner: ReferenceType[Cache] = ref(cache)
        self.room, self.length, self.weights = room, -1, addresses(stack)
        self.ids, self.position_ids = ids.clone(), None if position_ids is None else position_ids.clone()
        self.mask = ids.new_ones(ids.shape[0], room)
        self.cache = StaticCache(config=stack.config, max_cache_len=room)
        for layer, given in zip(self.layers, cache.layers, strict=True):
            layer.lazy_initialization(cast(Tensor, given.keys), cast(Tensor, given.values))
        model = ref(stack)  # whose recordings last as long as it does

        def step() -> Tensor:
            given = (self.ids, self.mask, self.position_ids, self.cache)
            return cast(Any, model())(*given, use_cache=True).last_hidden_state

        self.replay = RECORDERS[ids.device.type](step)  # writes to the memory, so before the cache stands there
        self.adopt(cache)

    @property
    def layers(self) -> list[StaticLayer]:
        """The layers of the recording's memory."""
        return cast("list[StaticLayer]", self.cache.layers)

    def fits(self, stack: Stack, cache: Cache, ids: Tensor, position_ids: Tensor | None) -> bool:
        """Return True where the recording computes a step of this cache, and no other cache uses its memory."""
        owner, keys = self.owner(), cast(Tensor, cache.layers[0].keys)
        alike = (position_ids is None) == (self.position_ids is None) and self.layers[0].keys.dtype == keys.dtype
        sizes = (len(ids), room_for(cache)) == (len(self.ids), self.room)
        return (owner is None or owner is cache) and alike and sizes and self.weights == addresses(stack)

    def adopt(self, cache: Cache) -> None:
        """Let a cache stand in the recording's memory: (B, G, S, K) to the beginning of (B, G, room, K)."""
        self.owner, self.length = ref(cache), -1
        for layer, given in zip(self.layers, cache.layers, strict=True):
            held, room = cast(GrowingLayer, given), (cast(Tensor, layer.keys), cast(Tensor, layer.values))
            length = held.get_seq_length()
            for memory, cached in zip(room, held.cached, strict=True):
                memory[:, :, :length] = cached
                memory[:, :, length:] = 0  # what is masked must be a number
            held.room = room
            show(held, length)

    def holds(self, cache: Cache) -> bool:
        """Return True where a cache is the beginning of the recording's memory."""
        pairs = zip(self.layers, cache.layers, strict=True)
        return self.owner() is cache and all(begins(given.keys, layer.keys) for layer, given in pairs)

    def step(self, cache: Cache, ids: Tensor, mask: Tensor | None, position_ids: Tensor | None) -> Tensor:
        """Compute the step of one token for each row: (B, 1) -> (B, 1, D)."""
        length = cache.get_seq_length()
        if self.length != length:
            for layer in self.layers:
                layer.cumulative_length.fill_(length)
        self.ids.copy_(ids)
        self.mask.fill_(1) if mask is None else self.mask[:, : mask.shape[1]].copy_(mask)
        if self.position_ids is not None:
            self.position_ids.copy_(cast(Tensor, position_ids))
        hidden = self.replay().clone()
        self.length = length + 1
        for given in cache.layers:
            show(cast(GrowingLayer, given), self.length)
        return hidden


def show(layer: GrowingLayer, length: int) -> None:
    """Let a layer hold the first tokens of its room."""
    keys, values = cast("tuple[Tensor, Tensor]", layer.room)
    layer.written = layer.keys, layer.values = keys.narrow(2, 0, length), values.narrow(2, 0, length)


def addresses(stack: Stack) -> list[int]:
    """Return where the weights lie, which a recording reads there."""
    return [weight.data_ptr() for weight in stack.parameters()]


def room_for(cache: Cache) -> int:
    """Return the number of tokens in the memory of a recording for the next step of a cache."""
    return (cache.get_seq_length() // TOKENS + 1) * TOKENS


# The recordings of each stack, the last used behind the others.
RECORDINGS: WeakKeyDictionary[nn.Module, list[Recording]] = WeakKeyDictionary()
CHOOSING = Lock()


class RecordedStep:
    """Stand in for a decoder stack: repeat a recorded step where one fits, else compute it."""

    def __init__(self, step: StackStep) -> None:
        self.step, self.stack = step, step.stack
        self.seen: tuple[int, int] = (0, 0)
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> object:
        if not is_one_token(*args, **kwargs) or not can_record(*args[:4], kwargs):
            return self.step(*args, **kwargs)
        ids, mask, position_ids, cache = args[:4]
        if mask is not None:
            check_padding_mask(mask, ids, cache.get_seq_length(), 1)
        check_position_ids(ids, position_ids)
        recording = self.recording(ids, position_ids, cache)
        if recording is None:
            return self.step(*args, **kwargs)
        hidden = recording.step(cache, ids, mask, position_ids)
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden, **cache_field(cache))

    def recording(self, ids: Tensor, position_ids: Tensor | None, cache: Cache) -> Recording | None:
        """Return a recording that holds the cache, after making one where steps repeat; None where none fits yet."""
        with CHOOSING:
            recordings = RECORDINGS.setdefault(self.stack, [])
            given = (self.stack, cache, ids, position_ids)
            found = next((each for each in recordings if each.fits(*given)), None)
            if found is None:
                sizes = (len(ids), room_for(cache))
                self.calls = self.calls + 1 if sizes == self.seen else 1
                self.seen = sizes
                if self.calls < PATIENCE:
                    return None
                found = Recording(*given, sizes[1])
                recordings[:] = [each for each in recordings if each.weights == found.weights][1 - MOST :] + [found]
            elif not found.holds(cache):
                found.adopt(cache)
            return found


def can_record(ids: Tensor, mask: object, position_ids: object, cache: Cache, options: dict[str, Any]) -> bool:
    """Return True for a step on tensors of an accelerator, of a decoder alone, whose cache holds every token."""
    kind = ids.device.type
    grows = all(isinstance(layer, GrowingLayer) and layer.is_initialized for layer in cache.layers)
    plain = (mask is None or isinstance(mask, Tensor)) and all(options.get(name) is None for name in GIVEN)
    return kind in RECORDERS and grows and plain and not torch.is_autocast_enabled(kind)


def recorded_steps(model: nn.Module) -> dict[nn.Module, RecordedStep]:
    """Return a recorded step for each decoder on an accelerator for which a step is the same as its forward."""
    kinds = {weight.device.type for weight in model.parameters()}
    if len(kinds) != 1 or not kinds <= RECORDERS.keys():
        return {}
    return {stack: RecordedStep(cast(StackStep, step)) for stack, step in stack_steps(model).items()}
