"""Steps of generation that an accelerator records once and repeats: the host starts one graph, not hundreds of kernels.

Shapes: B batch, S cached tokens, D hidden_size.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, StaticCache, StaticLayer
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from ..checks.inputs import check_padding_mask, check_position_ids
from ..checks.keywords import cache_field
from ..heads.routing import routers_of
from ..kernels.growing_cache import GrowingLayer, begins
from ..stack import Stack
from .stack_step import GIVEN, StackStep, is_one_token, stack_steps

# A recording holds so many tokens, or a multiple; is made at this step in succession; and no more of them are kept.
TOKENS, PATIENCE, MOST = 256, 4, 2
# Bytes of keys and values from which on a step is long enough to hide what starts it.
LARGEST = 2**30

Step = Callable[[], Tensor]


def record_on_cuda(step: Step) -> Step:
    """Record a step as a CUDA graph, after steps that let libraries choose kernels and take memory.

    Source: PyTorch's notes on CUDA semantics, https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
    Shapes: -> (B, 1, D)
    """
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


class OneToken(NamedTuple):
    """The inputs of a step: ids (B, 1), the mask of all tokens (B, S) or None, positions (B, 1) or None."""

    ids: Tensor
    mask: Tensor | None
    position_ids: Tensor | None


class Recording:
    """A recorded step of a stack, with memory for the keys and values of one cache, its `owner`, at a time."""

    def __init__(self, stack: Stack, cache: Cache, token: OneToken) -> None:
        self.owner: ReferenceType[Cache] = ref(cache)
        self.room, self.length = room_for(cache), -1
        ids, _, positions = token
        self.ids, self.position_ids = ids.clone(), None if positions is None else positions.clone()
        self.mask = ids.new_ones(len(ids), self.room)
        self.cache = StaticCache(config=stack.config, max_cache_len=self.room)
        for layer, given in zip(self.layers, layers_of(cache), strict=True):
            layer.lazy_initialization(*given.cached)

        def step() -> Tensor:
            given = (self.ids, self.mask, self.position_ids, self.cache)
            return cast(Any, stack)(*given, use_cache=True).last_hidden_state

        self.replay = RECORDERS[ids.device.type](step)  # writes to the memory, so before the cache stands there
        self.adopt(cache)

    @property
    def layers(self) -> list[StaticLayer]:
        """The layers of the recording's memory."""
        return cast("list[StaticLayer]", self.cache.layers)

    def fits(self, cache: Cache, token: OneToken) -> bool:
        """Return True where the recording computes a step of this cache, and no other cache uses its memory."""
        owner, dtypes = self.owner(), {cast(Tensor, each.keys).dtype for each in (self.layers[0], *layers_of(cache))}
        alike = (token.position_ids is None) == (self.position_ids is None) and len(dtypes) == 1
        sizes = (len(token.ids), room_for(cache)) == (len(self.ids), self.room)
        return (owner is None or owner is cache) and alike and sizes

    def adopt(self, cache: Cache) -> None:
        """Let a cache stand in the recording's memory: (B, G, S, K) to the beginning of (B, G, room, K)."""
        self.owner, self.length = ref(cache), -1
        for layer, held in zip(self.layers, layers_of(cache), strict=True):
            room, length = (cast(Tensor, layer.keys), cast(Tensor, layer.values)), held.get_seq_length()
            for memory, cached in zip(room, held.cached, strict=True):
                memory[:, :, :length] = cached
                memory[:, :, length:] = 0  # what is masked must be a number
            held.room = room
            show(held, length)

    def holds(self, cache: Cache) -> bool:
        """Return True where a cache is the beginning of the recording's memory."""
        pairs = zip(self.layers, layers_of(cache), strict=True)
        return self.owner() is cache and all(begins(held.cached[0], cast(Tensor, layer.keys)) for layer, held in pairs)

    def step(self, cache: Cache, token: OneToken) -> Tensor:
        """Compute the step of one token for each row: (B, 1) -> (B, 1, D)."""
        length, (ids, mask, position_ids) = cache.get_seq_length(), token
        if self.length != length:
            for layer in self.layers:
                layer.cumulative_length.fill_(length)
        self.ids.copy_(ids)
        self.mask.fill_(1) if mask is None else self.mask[:, : mask.shape[1]].copy_(mask)
        if self.position_ids is not None:
            self.position_ids.copy_(cast(Tensor, position_ids))
        hidden = self.replay().clone()
        self.length = length + 1
        for held in layers_of(cache):
            show(held, self.length)
        return hidden


def layers_of(cache: Cache) -> list[GrowingLayer]:
    """Return the layers of a cache with room."""
    return cast("list[GrowingLayer]", cache.layers)


def show(layer: GrowingLayer, length: int) -> None:
    """Let a layer hold the first tokens of its room."""
    keys, values = cast("tuple[Tensor, Tensor]", layer.room)
    layer.written = layer.keys, layer.values = keys.narrow(2, 0, length), values.narrow(2, 0, length)


def room_for(cache: Cache) -> int:
    """Return the number of tokens in the memory of a recording for the next step of a cache."""
    return (cache.get_seq_length() // TOKENS + 1) * TOKENS


class RecordedStep:
    """Stand in for a decoder stack: repeat a recorded step where one fits, else compute it.

    Its recordings end with it: between two calls of `generate` an adapter or a field may change the computation.
    """

    def __init__(self, step: StackStep) -> None:
        self.step, self.stack = step, step.stack
        self.seen: tuple[int, int] = (0, 0)
        self.calls = 0
        self.recordings: list[Recording] = []

    def __call__(self, *args: Any, **kwargs: Any) -> object:
        if not is_one_token(*args, **kwargs):
            return self.step(*args, **kwargs)
        ids, mask, position_ids, cache = args[:4]
        if not can_record(ids, mask, cache, kwargs):
            return self.step(*args, **kwargs)
        if mask is not None:
            check_padding_mask(mask, ids, cache.get_seq_length(), 1)
        check_position_ids(ids, position_ids)
        token = OneToken(ids, mask, position_ids)
        recording = self.recording(cache, token)
        if recording is None:
            return self.step(*args, **kwargs)
        hidden = recording.step(cache, token)
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden, **cache_field(cache))

    def recording(self, cache: Cache, token: OneToken) -> Recording | None:
        """Return a recording that holds the cache, after making one where steps repeat; None where none fits yet."""
        found = next((each for each in self.recordings if each.fits(cache, token)), None)
        if found is None:
            sizes = (len(token.ids), room_for(cache))
            self.calls = self.calls + 1 if sizes == self.seen else 1
            self.seen = sizes
            if self.calls < PATIENCE:
                return None
            found, self.calls = Recording(self.stack, cache, token), 0
            self.recordings = [*self.recordings[1 - MOST :], found]
        elif not found.holds(cache):
            found.adopt(cache)
        return found


def can_record(ids: Tensor, mask: object, cache: Cache, options: dict[str, Any]) -> bool:
    """Return True for a step on tensors of an accelerator, of a decoder alone, whose cache holds every token."""
    kind = ids.device.type
    grows = all(isinstance(layer, GrowingLayer) and layer.is_initialized for layer in cache.layers)
    if not grows or sum(layer.cached[0][:, :, :1].nbytes for layer in layers_of(cache)) * 2 * room_for(cache) > LARGEST:
        return False
    plain = (mask is None or isinstance(mask, Tensor)) and all(options.get(name) is None for name in GIVEN)
    return kind in RECORDERS and plain and not torch.is_autocast_enabled(kind)


def recorded_steps(model: nn.Module) -> dict[nn.Module, RecordedStep]:
    """Return a recorded step for each decoder on an accelerator for which a step is the same as its forward."""
    kinds = {weight.device.type for weight in model.parameters()}
    if len(kinds) != 1 or not kinds <= RECORDERS.keys():
        return {}
    steps = stack_steps(model).items()
    # The number of tokens of an expert was never recorded.
    return {stack: RecordedStep(step) for stack, step in steps if not routers_of(stack)}
