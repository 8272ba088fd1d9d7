"""Predict parameters, FLOPs, memory, communication and time of a training, from the real modules without weights."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import Any

from qkv.scripts.planning.collectives import Collective
from qkv.scripts.planning.devices import DEVICES, NODE
from qkv.scripts.planning.planned_model import PlannedModel
from qkv.scripts.planning.simulate import Setup, Step, count_flops, simulate


@dataclass(frozen=True)
class Estimate:
    """The time of a training, in seconds per step, if devices reach `utilization` of their peak.

    `communication` overlaps with `computation`; `blocking` communication does not. `hours` are those of all steps, None
    where their number is unknown.
    """

    device: str
    utilization: float
    computation: float
    communication: float
    blocking: float
    steps: int | None
    step: float
    hours: float | None


@dataclass
class Prediction:
    """Everything about one model and one setup, `plain` and with gradient checkpointing (`checkpointed`)."""

    model: PlannedModel
    setup: Setup
    parameters: dict[str, int]
    flops: dict[str, float]
    plain: Step
    checkpointed: Step
    device: str
    estimate: Estimate | None

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON; bytes, FLOPs and seconds."""
        return {
            "model": self.model.name,
            "class": self.model.model_class.__name__,
            "example": self.model.sizes,
            "device": self.device,
            "setup": asdict(self.setup),
            "parameters": self.parameters,
            "flops": self.flops,
            "memory": {"plain": self.plain.memory, "checkpointed": self.checkpointed.memory},
            "communication": [{**asdict(each), "sent": each.sent} for each in self.plain.communication],
            "estimate": asdict(self.estimate) if self.estimate else None,
        }


def predict(
    model: PlannedModel, setups: Sequence[Setup], device: str, utilization: float, steps: int | None
) -> list[Prediction]:
    """Count, simulate a step with and without gradient checkpointing, and estimate the time, for each setup."""
    parameters, flops = count_parameters(model), flops_per_unit(model)
    simulated = cache(partial(simulate, model))
    predictions = []
    for setup in setups:
        plain, checkpointed = (
            predict_step(simulated, replace(setup, checkpointing=on), parameters["trained"], model)
            for on in (False, True)
        )
        work = flops["model"] * model.units * setup.batch * setup.accumulate / setup.split
        time = estimate(device, utilization, steps, setup, plain, work) if device in DEVICES else None
        predictions.append(Prediction(model, setup, parameters, flops, plain, checkpointed, device, time))
    return predictions


def count_parameters(model: PlannedModel) -> dict[str, int]:
    """Count all parameters, those of embedding tables, and those that are trained; tied ones once."""
    module = model.without_weights()
    module.tie_weights()
    total = module.num_parameters()
    embedding = total - module.num_parameters(exclude_embeddings=True)
    return {"total": total, "embedding": embedding, "trained": module.num_parameters(only_trainable=True)}


def flops_per_unit(model: PlannedModel) -> dict[str, float]:
    """Count FLOPs per token or example: forward, a training step as kernels compute it, and the model's share of that.

    The last is three times forward, which utilization is measured by; for a decoder it is 6 N D and attention.

    Source: Kaplan et al. 2020, §2.1, https://arxiv.org/abs/2001.08361
    """
    forward, training = count_flops(model)
    return {"forward": forward / model.units, "training": training / model.units, "model": 3 * forward / model.units}


def predict_step(simulated: Callable[[Setup], Step], setup: Setup, trained: int, model: PlannedModel) -> Step:
    """Predict a step on one device, whose model has so many trained parameters."""
    if setup.strategy != "ddp":
        return simulated(setup)
    # The step of each device is the same for any number of them, unless their examples are contrasted.
    alone = simulated(setup if model.example.in_batch_negatives else replace(setup, world_size=1))
    if setup.world_size == 1:
        return alone
    # Gradients are reduced in buckets of their own, in single precision, which are never freed.
    reduced = Collective("all-reduce", setup.world_size, min(setup.world_size, NODE), 1, 4 * trained)
    sums: dict[str, Collective] = {}
    for each in (*alone.communication, reduced):
        whole = sums.setdefault(each.kind, replace(each, calls=0, bytes=0))
        whole.calls, whole.bytes = whole.calls + each.calls, whole.bytes + each.bytes
    return Step({**alone.memory, "buckets": 4 * trained}, list(sums.values()))


def estimate(device: str, utilization: float, steps: int | None, setup: Setup, step: Step, work: float) -> Estimate:
    """Estimate the time of a step that takes so many FLOPs on each device."""
    figures = DEVICES[device]
    computation = work / (utilization * getattr(figures, setup.precision))
    blocking = sum(collective.seconds(figures) for collective in step.communication if collective.blocking)
    overlapped = sum(collective.seconds(figures) for collective in step.communication if not collective.blocking)
    seconds = max(computation, overlapped) + blocking
    hours = None if steps is None else seconds * steps / 3600
    return Estimate(figures.name, utilization, computation, overlapped, blocking, steps, seconds, hours)
