"""What is measured, how much of it, and what is written down?"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from qkv.scripts.common.environment import commit, processor, versions
from qkv.scripts.history import activations, gradients, quality, speed
from qkv.scripts.history.contenders import CONTENDERS, LETTERS, built
from qkv.scripts.training.record import Clock


@dataclass(frozen=True)
class Size:
    """How much is measured.

    `width` is the Transformer's; each model learns for `seconds` of CPU time about texts of the lengths of `lessons`,
    `batch` letters at a step, and is examined about `letters` letters at each length of `exams`. Steps on `work`
    letters are timed at the lengths of `timed`, in so many `turns`, single layers at those of `alone`. Gradients are
    those in texts of `distant` letters; activations those of layers of `deep` components.
    """

    width: int
    seconds: float
    lessons: tuple[int, ...]
    batch: int
    exams: tuple[int, ...]
    letters: int
    timed: tuple[int, ...]
    work: int
    turns: int
    alone: tuple[int, ...]
    distant: int
    deep: int
    rate: float = 3e-3


FULL = Size(
    width=64, seconds=110.0, lessons=(10, 16, 25, 40, 63, 100), batch=640,
    exams=(10, 16, 25, 40, 63, 100, 200, 400, 1000), letters=4000, timed=(10, 32, 100, 316, 1000), work=2000, turns=7,
    alone=(128, 256, 512, 1024, 2048), distant=500, deep=512,
)  # fmt: skip
QUICK = Size(
    width=8, seconds=0.1, lessons=(3, 5), batch=20, exams=(3, 5, 8), letters=16, timed=(3, 6), work=12, turns=1,
    alone=(8, 16), distant=5, deep=16,
)  # fmt: skip


@contextmanager
def one_core() -> Iterator[None]:
    """One thread, so that CPU seconds are those of one core, and subnormal numbers as zeros.

    Gradients that vanish over a thousand steps are such numbers, and cost a CPU several times as long as others.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)


@one_core()
def timed_again(record: dict[str, Any], command: str) -> dict[str, Any]:
    """A record whose training steps are measured anew, everything else as it was."""
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in record["size"].items()
    }
    size, models = Size(**values), built(record["size"]["width"], record["seed"])
    return record | {"steps": steps_of(models, size, command)}


def steps_of(models: dict[str, PreTrainedModel], size: Size, command: str) -> dict[str, Any]:
    """Training steps by length, and what they came from, for they can be measured alone."""
    contenders = {name: models[name] for name in CONTENDERS}
    found = speed.steps(contenders, size.timed, size.work, size.turns)
    return {"lengths": list(size.timed), "models": found, "command": command, "commit": commit()}


@one_core()
def measured(size: Size, seed: int, command: str) -> dict[str, Any]:
    """The record of everything."""
    clock, origin, models = Clock(), provenance(size, seed, command), built(size.width, seed)
    contenders = {name: models[name] for name in CONTENDERS}
    say("gradients before training")
    untrained = gradients.by_distance(contenders, size.distant)
    say("training steps by length, layers alone, activations")
    steps = steps_of(models, size, command)
    layers = speed.layers(size.width, size.alone, size.turns)
    seen = activations.activations(size.deep)
    say(f"training: {len(models)} models, {size.seconds:g} CPU seconds each")
    learning = quality.teach(models, quality.Lessons(size.seconds, size.lessons, size.batch, size.rate, seed))
    say("quality by length, gradients after training")
    exams = {name: examined(model, size) for name, model in models.items()}
    trained = gradients.by_distance(contenders, max(size.lessons))
    return origin | {
        "models": {
            name: {"architecture": type(model).__name__, "parameters": model.num_parameters()}
            for name, model in models.items()
        },
        "learning": learning,
        "quality": exams,
        "steps": steps,
        "layers": layers,
        "gradients": {"untrained": untrained, "trained": trained},
        "activations": seen,
        "time": clock.read(),
    }


def provenance(size: Size, seed: int, command: str) -> dict[str, Any]:
    """What everything came from."""
    device = {"processor": processor(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    return {
        "command": command, "seed": seed, "size": asdict(size), "letters": LETTERS, "commit": commit(),
        "versions": versions(), "device": device,
    }  # fmt: skip


def examined(model: PreTrainedModel, size: Size) -> list[list[float]]:
    """The share of right letters at each length; a length is the seed of its texts, and no lesson's."""
    return [[length, quality.examine(model, length, size.letters, length)] for length in size.exams]


def say(what: str) -> None:
    """Tell what is next; the results go to standard output."""
    print(what, file=sys.stderr)
