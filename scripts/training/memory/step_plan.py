"""Say before a training what its steps take, and answer a batch that does not fit with what to type instead."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from qkv.scripts.common.memory import free_memory
from qkv.scripts.common.phases import phase, say
from qkv.scripts.common.tables import scaled
from qkv.scripts.training.loop import Loop
from qkv.scripts.training.memory.step_cost import StepCost, bytes_of, gradient_bytes, held_bytes, is_measurable, measure

# What torch's allocators say, of the CPU in several words, and what C++ does.
OUT_OF_MEMORY = ("DefaultCPUAllocator", "out of memory", "not enough memory", "std::bad_alloc")


@dataclass(frozen=True)
class StepPlan:
    """The cost of a step, where it could be measured, and the memory that was there for it before the training."""

    loop: Loop
    room: int | None = None
    cost: StepCost | None = None

    @property
    def batch_size(self) -> int:
        """The examples of a step on this process."""
        return self.loop.loader.share.size * self.loop.recipe.optimization.accumulate

    def sentence(self) -> str:
        """Return what the steps that are left take; empty where that is not known."""
        left = self.loop.recipe.optimization.max_steps - self.loop.done
        if self.cost is None or self.room is None:
            return ""
        peak = self.cost.peak(self.loop.recipe.optimization.accumulate)
        return (
            f"{left:,} step{'s' * (left != 1)} of about {self.cost.seconds:.3g} s take "
            f"{spoken(left * self.cost.seconds)}, evaluations apart; memory at the peak is about {scaled(peak, 'B')} "
            f"of {scaled(self.room, 'B')} that are free"
        )

    def check(self) -> None:
        """Raise ValueError where a step does not fit, with what to type instead."""
        if self.cost is None or self.room is None:
            return
        peak = self.cost.peak(self.loop.recipe.optimization.accumulate)
        if peak > self.room:
            raise ValueError(
                f"{self.batch()} takes about {scaled(peak, 'B')} at its peak, and {scaled(self.room, 'B')} are free "
                f"{self.where()}; {self.mend()}"
            )

    def batch(self) -> str:
        """Return the fields that say how many examples are computed at once."""
        accumulate = self.loop.recipe.optimization.accumulate
        parts = f" in accumulate={accumulate} parts" if accumulate > 1 else ""
        return f"batch_size={self.loop.recipe.optimization.batch_size}{parts}"

    def where(self) -> str:
        """Return the kind of device."""
        kind = self.loop.accelerator.device.type
        return "on the CPU" if kind == "cpu" else "on the GPU"

    def mend(self) -> str:
        """Return what to type so that a step fits: the fewest parts that do, whose result is the same."""
        if self.loop.task.in_batch_negatives:
            return (
                "its pairs are each other's negatives, so a step cannot be split: model.embedding_chunk_size=16 gives "
                "the loss of the whole batch, some rows at a time"
            )
        now = self.loop.recipe.optimization.accumulate
        for parts in range(now + 1, self.batch_size + 1):
            if self.batch_size % parts == 0 and (self.cost is None or self.cost.peak(parts) <= (self.room or 0)):
                takes = f", in about {scaled(self.cost.peak(parts), 'B')}" if self.cost else ""
                return (
                    f"accumulate={parts} takes the same step in parts of {self.batch_size // parts} examples, to the "
                    f"same result{takes}"
                )
        return (
            "one example at a time is too much already: try gradient_checkpointing=true, and after that shorter texts "
            "(text.length), smaller images or a smaller model"
        )

    def follow(self, take_steps: Callable[[], None]) -> None:
        """Say what the steps will take, and take them; RuntimeError where they do not fit after all."""
        if sentence := self.sentence():
            say(sentence)
        with self.explained():
            take_steps()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Explain a failure to allocate memory within this context; RuntimeError says what to type instead."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if not isinstance(error, MemoryError) and not any(words in str(error) for words in OUT_OF_MEMORY):
                raise
            room = f"{scaled(self.room, 'B')} were free before" if self.room is not None else "none was left"
            peak = self.cost and scaled(self.cost.peak(self.loop.recipe.optimization.accumulate), "B")
            raise RuntimeError(
                f"{self.batch()} found no memory {self.where()} after step {self.loop.done}: {room}"
                f"{f', and a step was to take about {peak}' if peak else ''}; {self.mend()}"
            ) from error


def plan_steps(loop: Loop) -> StepPlan:
    """Measure what a step takes; ValueError where it does not fit, before anything is trained."""
    free = free_memory(loop.accelerator.device)
    if free is None or not is_measurable(loop):
        return StepPlan(loop, free)
    plan = StepPlan(loop, free + bytes_of(loop.model.parameters()))
    held, gradients = held_bytes(loop), gradient_bytes(loop)
    if held + gradients > free:  # no room for a copy
        StepPlan(loop, plan.room, StepCost(0.0, held, 0.0, gradients, plan.batch_size)).check()
        return plan
    with phase("measuring a step"), plan.explained():
        plan = StepPlan(loop, plan.room, measure(loop, free))
    plan.check()
    return plan


def spoken(seconds: float) -> str:
    """Return a time as one says it: seconds, minutes or hours."""
    if seconds < 90:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} minutes" if seconds < 7200 else f"about {seconds / 3600:.1f} hours"
