"""Measure everything that the comparison records."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from qkv.scripts.common.environment import commit, processor, versions
from qkv.scripts.common.files import table
from qkv.scripts.lab.history import choices, heads
from qkv.scripts.lab.history.activations import measure_activations
from qkv.scripts.lab.history.gradients import gradients_by_distance
from qkv.scripts.lab.history.lengths import measure_stacks
from qkv.scripts.lab.history.models import COMPARED, LETTERS, build_models
from qkv.scripts.lab.history.quality import Curriculum, accuracy, train_in_turns
from qkv.scripts.lab.history.speed import measure_layers, time_steps
from qkv.scripts.training.accelerator import keep_freed_memory
from qkv.scripts.training.record import Clock


@dataclass(frozen=True)
class Size:
    """The amount of everything that is measured.

    `width` is the Transformer's. Each model is trained for `seconds` of CPU time on sources of the `training_lengths`,
    `batch_tokens` at a step, and tested on about `test_tokens` at each of the `test_lengths`. Training steps on
    `timed_tokens` are timed at the `timed_lengths`, in so many `turns`, single layers at the `layer_lengths`, stacks of
    layers at the `stack_lengths` while a step takes no more than `most_seconds`. Gradients are measured on sources of
    `gradient_length`, activations in layers of `activation_width`.
    """

    width: int
    seconds: float
    training_lengths: Sequence[int]
    batch_tokens: int
    test_lengths: Sequence[int]
    test_tokens: int
    timed_lengths: Sequence[int]
    timed_tokens: int
    turns: int
    layer_lengths: Sequence[int]
    stack_lengths: Sequence[int]
    most_seconds: float
    gradient_length: int
    activation_width: int
    learning_rate: float = 3e-3


SIZES = {name: Size(**amounts) for name, amounts in table(__file__).items()}

# Small models that are measured one by one, so that what was interrupted goes on: how, and their table.
SMALL_MODELS = {"choices": (choices.measure_choice, choices.TABLE), "heads": (heads.measure_heads, heads.TABLE)}


@contextmanager
def one_core() -> Iterator[None]:
    """Run on one thread, so that CPU seconds are those of one core, and with subnormal numbers as zeros.

    Gradients that vanish over a thousand steps are subnormal, and cost a CPU several times as long as others.
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
def measure_again(record: dict[str, Any], part: str, command: str) -> dict[str, Any]:
    """Return a record whose `steps` or `lengths` are measured anew."""
    size = Size(**record["size"])
    if part == "lengths":
        return record | {"lengths": measure_lengths(size, command)}
    return record | {"steps": measure_steps(build_models(size.width, record["seed"]), size, command)}


def measure_steps(models: dict[str, PreTrainedModel], size: Size, command: str) -> dict[str, Any]:
    """Time training steps by length, and name their origin, for they can be timed alone."""
    compared = {name: models[name] for name in COMPARED}
    times = time_steps(compared, size.timed_lengths, size.timed_tokens, size.turns)
    return {"lengths": list(size.timed_lengths), "models": times, "command": command, "commit": commit()}


def measure_lengths(size: Size, command: str) -> dict[str, Any]:
    """Measure stacks of layers by length, as in a training; name the origin, for they can be measured alone."""
    keep_freed_memory(torch.device("cpu"))
    stacks = measure_stacks(size.stack_lengths, size.most_seconds)
    return {"stacks": stacks, "command": command, "commit": commit(), "device": device()}


def measure_small_models(before: dict[str, Any], part: str, size: str, command: str) -> Iterator[dict[str, Any]]:
    """Measure those `choices` or `heads` that this part of a record has not, and yield the part after each."""
    run, models = SMALL_MODELS[part]
    found = before["found"] if before.get("amount") == models[size] else {}
    own = {"amount": models[size], "command": command, "commit": commit()}
    with one_core():
        for name in (name for name in models["choices"] if name not in found):
            log(f"{part}: {name}")
            found = found | {name: [run(models["choices"][name], models[size], seed) for seed in models[size]["seeds"]]}
            yield own | {"device": device(), "found": found}


@one_core()
def measure(size: Size, seed: int, command: str) -> dict[str, Any]:
    """Measure everything, and return the record."""
    clock, origin, models = Clock(), provenance(size, seed, command), build_models(size.width, seed)
    compared = {name: models[name] for name in COMPARED}
    log("gradients before training")
    untrained = gradients_by_distance(compared, size.gradient_length)
    log("training steps by length, activations")
    steps = measure_steps(models, size, command)
    activations = measure_activations(size.activation_width)
    log(f"training: {len(models)} models, {size.seconds:g} CPU seconds each")
    curriculum = Curriculum(size.seconds, size.training_lengths, size.batch_tokens, size.learning_rate, seed)
    training = train_in_turns(models, curriculum)
    log("quality by length, layers alone, costs of long texts, gradients after training")
    # A length is the seed of its sources, and of none in training.
    quality = {
        name: [[length, accuracy(model, length, size.test_tokens, length)] for length in size.test_lengths]
        for name, model in models.items()
    }
    return origin | {
        "models": {
            name: {"architecture": type(model).__name__, "parameters": model.num_parameters()}
            for name, model in models.items()
        },
        "training": training,
        "quality": quality,
        "steps": steps,
        "layers": measure_layers(size.width, size.layer_lengths, size.turns),
        "lengths": measure_lengths(size, command),
        "gradients": {"untrained": untrained, "trained": gradients_by_distance(compared, size.training_lengths[-1])},
        "activations": activations,
        "time": clock.read(),
    }


def provenance(size: Size, seed: int, command: str) -> dict[str, Any]:
    """Return what the measurements came from."""
    return {
        "command": command, "seed": seed, "size": asdict(size), "letters": LETTERS, "commit": commit(),
        "versions": versions(), "device": device(),
    }  # fmt: skip


def device() -> dict[str, Any]:
    """Return what the measurements run on."""
    return {"processor": processor(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}


def log(message: str) -> None:
    """Print what comes next on standard error; results go to standard output."""
    print(message, file=sys.stderr)
