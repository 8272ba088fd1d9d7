"""Predict parameters, FLOPs, memory, communication and time of a training, from the real modules without weights."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import Any

from qkv.scripts.planning.collectives import Collective
from qkv.scripts.planning.devices import DEVICES, Device, Estimate
from qkv.scripts.planning.planned_model import PlannedModel
from qkv.scripts.planning.simulate import Setup, Step, count_flops, simulate


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
        setup = {name: value for name, value in asdict(self.setup).items() if name not in ("fused", "checkpointing")}
        return {
            "model": self.model.name,
            "class": self.model.model_class.__name__,
            "example": self.model.sizes,
            "device": self.device,
            "setup": setup,
            "parameters": self.parameters,
            "flops": self.flops,
            "memory": {"plain": self.plain.memory, "checkpointed": self.checkpointed.memory},
            "communication": [collective.as_json() for collective in self.plain.communication],
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
            predict_step(
                simulated,
                replace(setup, checkpointing=on),
                parameters["trained"],
                in_batch_negatives=model.example.in_batch_negatives,
            )
            for on in (False, True)
        )
        time = None
        if device in DEVICES:
            work = flops["model"] * model.units * setup.batch * setup.accumulate / setup.split
            time = estimate(DEVICES[device], utilization, steps, setup, plain, work)
        predictions.append(Prediction(model, setup, parameters, flops, plain, checkpointed, device, time))
    return predictions


def count_parameters(model: PlannedModel) -> dict[str, int]:
    """Count all parameters, those of embedding tables, and those that are trained; tied ones once."""
    module = model.without_weights()
    module.tie_weights()
    total = module.num_parameters()
    return {
        "total": total,
        "embedding": total - module.num_parameters(exclude_embeddings=True),
        "trained": module.num_parameters(only_trainable=True),
    }


def flops_per_unit(model: PlannedModel) -> dict[str, float]:
    """Count FLOPs per token or example: forward, a training step as kernels compute it, and the model's share of that.

    The last is three times forward, which utilization is measured by; for a decoder it is 6 N D and attention.

    Source: Kaplan et al. 2020, §2.1, https://arxiv.org/abs/2001.08361
    """
    forward, training = count_flops(model)
    return {"forward": forward / model.units, "training": training / model.units, "model": 3 * forward / model.units}


def predict_step(
    simulated: Callable[[Setup], Step], setup: Setup, trained: int, *, in_batch_negatives: bool = False
) -> Step:
    """Predict a step on one device, whose model has so many trained parameters."""
    if setup.strategy in ("fsdp2", "tp"):
        return simulated(setup)
    # What every device does by itself is the same for any number of them, unless their examples are contrasted.
    alone = simulated(setup if in_batch_negatives else replace(setup, world_size=1))
    if setup.strategy != "ddp":
        return shard_by_zero(alone, trained, setup)
    if setup.world_size == 1:
        return alone
    # Gradients are reduced in buckets of their own, which are never freed.
    gradients = trained * setup.stored.itemsize
    reduced = Collective.of_all("all-reduce", setup.world_size, 1, gradients)
    return Step({**alone.memory, "buckets": gradients}, merged_by_kind([*alone.communication, reduced]))


def merged_by_kind(collectives: Sequence[Collective]) -> list[Collective]:
    """Merge the collectives of each kind into one."""
    sums: dict[str, Collective] = {}
    for each in collectives:
        whole = sums.setdefault(each.kind, replace(each, calls=0, bytes=0))
        whole.calls, whole.bytes = whole.calls + each.calls, whole.bytes + each.bytes
    return list(sums.values())


def shard_by_zero(alone: Step, parameters: int, setup: Setup) -> Step:
    """Predict DeepSpeed's stages by formula: sharded optimizer and gradients (2), and weights as well (3).

    Adam keeps two moments and weights in single precision, 12 bytes per parameter. Gradients are reduced after each
    micro-batch, and weights are gathered after the step (2), or forward and backward in each micro-batch (3).

    Source: Rajbhandari et al. 2020, ZeRO, §3.1, §5 and §7, https://arxiv.org/abs/1910.02054
    """
    devices, whole = setup.world_size, parameters * setup.stored.itemsize
    weights = whole if setup.strategy == "zero2" else whole // devices
    memory = {"weights": weights, "gradients": whole // devices, "optimizer": 12 * parameters // devices}
    gathers = 1 if setup.strategy == "zero2" else 2 * setup.accumulate
    communication = [
        Collective.of_all("all-gather", devices, gathers, gathers * whole),
        Collective.of_all("reduce-scatter", devices, setup.accumulate, setup.accumulate * whole),
    ]
    merged = merged_by_kind([*alone.communication, *communication]) if devices > 1 else []
    return Step({**alone.memory, **memory}, merged)


def estimate(device: Device, utilization: float, steps: int | None, setup: Setup, step: Step, work: float) -> Estimate:
    """Estimate the time of a step that takes so many FLOPs on each device."""
    computation = work / (utilization * getattr(device, setup.precision))
    blocking = sum(device.seconds(collective) for collective in step.communication if collective.blocking)
    overlapped = sum(device.seconds(collective) for collective in step.communication if not collective.blocking)
    seconds = max(computation, overlapped) + blocking
    hours = None if steps is None else seconds * steps / 3600
    return Estimate(device.name, utilization, computation, overlapped, blocking, steps, seconds, hours)
