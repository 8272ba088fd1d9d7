"""Measure on a copy of the model what an optimizer step takes: its seconds, and its peak memory by the examples."""

import copy
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median

import torch
from accelerate.utils import send_to_device
from torch import Tensor
from torch.utils._pytree import tree_leaves

from qkv.scripts.data.examples import Batch
from qkv.scripts.training.ema import EMA
from qkv.scripts.training.loop import Loop, parameter_groups
from qkv.scripts.training.memory.tracker import MemoryTracker
from qkv.scripts.training.sampler import MapLoader, Place
from qkv.scripts.training.schedule import make_schedule

# A larger batch is measured after one that took no more than so many seconds.
SECONDS = 2.0
STEPS, GROWTH = 5, 4


@dataclass(frozen=True)
class StepCost:
    """The seconds of an optimizer step, and its bytes: `held` throughout, and `each` while an example is computed.

    The `gradients` come when what was computed is freed again, but from the second micro-batch on they are there first.
    """

    seconds: float
    held: int
    each: float
    gradients: int
    batch_size: int

    def peak(self, accumulate: int) -> int:
        """Return the bytes at the peak of a step that is taken in so many parts."""
        computed = round(self.each * (self.batch_size // accumulate))
        return self.held + (self.gradients + computed if accumulate > 1 else max(self.gradients, computed))


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of tensors."""
    return sum(tensor.nbytes for tensor in tensors)


def held_bytes(loop: Loop) -> int:
    """Return the bytes that a training holds throughout: the weights, their average, and two moments of each."""
    weights = bytes_of(loop.model.parameters())
    return weights + 2 * gradient_bytes(loop) + weights * (loop.ema is not None)


def gradient_bytes(loop: Loop) -> int:
    """Return the bytes of all gradients."""
    return bytes_of(weight for weight in loop.model.parameters() if weight.requires_grad)


def is_measurable(loop: Loop) -> bool:
    """Tell whether a copy of the model takes the training's steps: one process, as written, examples by index."""
    alone = loop.accelerator.num_processes == 1 and not loop.recipe.compute.compile
    return alone and isinstance(loop.loader, MapLoader)


def indexed(loop: Loop) -> MapLoader:
    """Return the loader of examples that have an index; TypeError for that of a stream."""
    if not isinstance(loop.loader, MapLoader):
        raise TypeError(f"the examples of {loop.task.data.name} are a stream: they cannot be chosen")
    return loop.loader


def measure(loop: Loop, free: int) -> StepCost:
    """Measure steps of a copy of the model; neither the training's model nor its data notice.

    One example is measured first, and then more and more of a micro-batch while they fit with ease and take a moment;
    what all of them take is extrapolated from that.
    """
    trial, size = copied(loop), loop.loader.share.size
    steps = [places[:size] for places in islice(indexed(loop).sampler.steps(), STEPS)]
    longest, held = longest_first(loop, steps[0]), held_bytes(trial)
    trial.step([micro_batch(trial, longest[:1])])  # after it the optimizer has its state, and libraries are loaded
    count, peaks, each, seconds = 1, [(0, held)], 0.0, 0.0
    while True:
        began = time.perf_counter()
        peaks.append((count, peak(trial, longest[:count])))
        seconds = time.perf_counter() - began
        (fewer, before), (more, after) = peaks[-2:]
        each = max((after - before) / (more - fewer), 0.0)
        count = min(GROWTH * more, size)
        if more == size or seconds > SECONDS or after + each * (count - more) > free / 2:
            break
    one, several = (median(timed(trial, [places[:few] for places in steps])) for few in (1, more))
    # What a step takes whatever its size does not grow with it.
    growth = max(several - one, 0.0) / (more - 1) if more > 1 else one
    seconds = several + growth * (size - more)
    accumulate = loop.recipe.optimization.accumulate
    return StepCost(seconds * accumulate, round(after - each * more), each, gradient_bytes(trial), size * accumulate)


def copied(loop: Loop) -> Loop:
    """Return a loop with a model and an optimizer of its own."""
    trial, optimization = copy.copy(loop), loop.recipe.optimization
    trial.model = copy.deepcopy(loop.model).train()
    groups = parameter_groups(trial.model, optimization.weight_decay)
    trial.optimizer = torch.optim.AdamW(groups, lr=optimization.learning_rate, fused=True)
    trial.schedule = make_schedule(trial.optimizer, loop.recipe.schedule, optimization.max_steps)
    trial.ema = EMA(trial.model, optimization.ema_decay) if optimization.ema_decay else None
    return trial


def longest_first(loop: Loop, places: Sequence[Place]) -> list[Place]:
    """Return the places with the longest example instead of the first, as texts are padded to the longest of them."""
    lengths = getattr(loop.task.train, "lengths", None)
    if not lengths:
        return list(places)
    return [(places[0][0], max(range(len(lengths)), key=lengths.__getitem__)), *places[1:]]


def micro_batch(loop: Loop, places: Sequence[Place]) -> Batch:
    """Return the batch of the examples at these places, where the model is."""
    batch: Batch = send_to_device(indexed(loop).__getitems__(places), loop.accelerator.device)
    return batch


def peak(trial: Loop, places: Sequence[Place]) -> int:
    """Return the most bytes that a step on these examples holds at once, gradients apart."""
    batch, tracker = micro_batch(trial, places), MemoryTracker(["gradients"])
    state = (value for own in trial.optimizer.state.values() for value in own.values())
    averaged = trial.ema.weights.values() if trial.ema else ()
    for tensors in (trial.model.parameters(), trial.model.buffers(), state, averaged, tree_leaves(batch)):
        tracker.label((one for one in tensors if isinstance(one, Tensor)), "held")
    hooks = tracker.label_gradients(trial.model)
    with tracker:
        trial.step([batch])
    for hook in hooks:
        hook.remove()
    return tracker.peak.total()


def timed(trial: Loop, steps: Sequence[Sequence[Place]]) -> Iterator[float]:
    """Yield the seconds of each step, the making of its batch among them, until they are enough."""
    started = time.perf_counter()
    for places in steps:
        began = time.perf_counter()
        float(trial.step([micro_batch(trial, places)]).loss)  # a GPU has taken the step when its loss is here
        yield time.perf_counter() - began
        if time.perf_counter() - started > SECONDS / (2 * GROWTH):
            return
