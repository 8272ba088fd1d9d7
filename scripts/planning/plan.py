"""What will a training take? Parameters, FLOPs, memory, traffic, time: of the real modules without their weights."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import Any

from torch import nn

from qkv.scripts.planning.collectives import Collective, among_all
from qkv.scripts.planning.devices import DEVICES, Device, Estimate
from qkv.scripts.planning.simulate import Setup, Step, flops, simulate
from qkv.scripts.planning.subject import Subject


@dataclass
class Plan:
    """All of it, for one subject and one setup."""

    subject: Subject
    setup: Setup
    parameters: dict[str, int]
    flops: dict[str, float]
    plain: Step
    checkpointed: Step
    device: str
    estimate: Estimate | None

    def as_json(self) -> dict[str, Any]:
        """It as JSON; bytes, FLOPs and seconds."""
        setup = {name: value for name, value in asdict(self.setup).items() if name not in ("fused", "checkpointing")}
        return {
            "subject": self.subject.name,
            "class": self.subject.model_class.__name__,
            "example": self.subject.sizes,
            "device": self.device,
            "setup": setup,
            "parameters": self.parameters,
            "flops": self.flops,
            "memory": {"plain": self.plain.memory, "checkpointed": self.checkpointed.memory},
            "traffic": [collective.plain() for collective in self.plain.traffic],
            "estimate": self.estimate.plain() if self.estimate else None,
        }


def plans(subject: Subject, setups: Sequence[Setup], device: str, utilization: float, steps: int | None) -> list[Plan]:
    """Count, run a step without numbers with and without gradient checkpointing, and estimate the time."""
    counted, work = count(subject), per_position(subject)
    once = partial(step, cache(partial(simulate, subject)), contested=subject.reading.contested)
    found = []
    for setup in setups:
        plain, checkpointed = (once(replace(setup, checkpointing=on), counted["trained"]) for on in (False, True))
        times = None
        if device in DEVICES:
            times = estimate(DEVICES[device], utilization, steps, setup, plain, work["model"] * subject.positions)
        found.append(Plan(subject, setup, counted, work, plain, checkpointed, device, times))
    return found


def count(subject: Subject) -> dict[str, int]:
    """Parameters: in all, those of tables that are looked up, and those that are trained; what is tied counts once."""
    model = subject.outline()
    model.tie_weights()
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    parameters = list(model.parameters())
    return {
        "total": sum(parameter.numel() for parameter in parameters),
        "embedding": sum(parameter.numel() for parameter in parameters if id(parameter) in tables),
        "trained": sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
    }


def per_position(subject: Subject) -> dict[str, float]:
    """FLOPs for a token or an example: forward, a training step as the kernels do it, and what of that is the model's.

    The last is three times forward, what utilization is measured by; for a decoder it is 6 N D and attention.

    Source: Kaplan et al. 2020, §2.1, https://arxiv.org/abs/2001.08361
    """
    forward, training = flops(subject)
    each = subject.positions
    return {"forward": forward / each, "training": training / each, "model": 3 * forward / each}


def step(once: Callable[[Setup], Step], setup: Setup, trained: int, *, contested: bool = False) -> Step:
    """What a step takes on one device."""
    if setup.strategy in ("fsdp2", "tp"):
        return once(setup)
    # What every device does by itself is the same for any number of them, unless their examples compete.
    alone = once(setup if contested else replace(setup, world_size=1))
    if setup.strategy != "ddp":
        return zero(alone, trained, setup)
    if setup.world_size == 1:
        return alone
    # Gradients are reduced in buckets of their own, which are never given up.
    gradients = trained * setup.stored.itemsize
    reduced = among_all("all-reduce", setup.world_size, 1, gradients)
    return Step({**alone.memory, "buckets": gradients}, joined([*alone.traffic, reduced]))


def joined(found: Sequence[Collective]) -> list[Collective]:
    """One collective for all of a kind."""
    sums: dict[str, Collective] = {}
    for each in found:
        whole = sums.setdefault(each.kind, replace(each, calls=0, bytes=0))
        whole.calls, whole.bytes = whole.calls + each.calls, whole.bytes + each.bytes
    return list(sums.values())


def zero(alone: Step, parameters: int, setup: Setup) -> Step:
    """DeepSpeed's stages, by formula: sharded optimizer and gradients (2), and weights as well (3).

    Adam keeps two moments and weights in single precision, 12 bytes for each parameter. Gradients are summed up after
    each part, and weights are gathered after the step (2), or forward and backward in each part (3).

    Source: Rajbhandari et al. 2020, ZeRO, §3.1, §5 and §7, https://arxiv.org/abs/1910.02054
    """
    devices, whole = setup.world_size, parameters * setup.stored.itemsize
    shared = whole if setup.strategy == "zero2" else whole // devices
    memory = {"weights": shared, "gradients": whole // devices, "optimizer": 12 * parameters // devices}
    gathers = 1 if setup.strategy == "zero2" else 2 * setup.accumulate
    traffic = [
        among_all("all-gather", devices, gathers, gathers * whole),
        among_all("reduce-scatter", devices, setup.accumulate, setup.accumulate * whole),
    ]
    return Step({**alone.memory, **memory}, joined([*alone.traffic, *traffic]) if devices > 1 else [])


def estimate(device: Device, utilization: float, steps: int | None, setup: Setup, found: Step, work: float) -> Estimate:
    """The time of a step, of which an example is that many FLOPs of work."""
    peak = utilization * getattr(device, setup.precision)
    computing = work * setup.batch * setup.data_parallel * setup.accumulate / setup.world_size / peak
    waiting = sum(device.seconds(sent) for sent in found.traffic if sent.awaited)
    sending = sum(device.seconds(sent) for sent in found.traffic if not sent.awaited)
    return Estimate(device.name, utilization, computing, sending, waiting, steps)
