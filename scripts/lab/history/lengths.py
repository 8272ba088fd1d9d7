"""Measure what texts of up to 65,536 tokens cost: variants of the recipe `long-range`, and an LSTM of the same width.

Shapes: n tokens, D hidden_size.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import linear_regression
from typing import Any

import torch
from torch import Tensor

from qkv import QkvDecoderConfig
from qkv.modeling import QkvDecoderModel
from qkv.scripts.common.files import table
from qkv.scripts.common.phases import say
from qkv.scripts.lab.history.speed import Curve, forward_seconds, recurrent_layer
from qkv.scripts.planning.memory_tracker import MemoryTracker
from qkv.scripts.recipes.loading import load, read_card

RECIPE = "long-range"
Layers = Callable[[Tensor], Tensor]
# Exponents are fitted from this length on, where what grows with the length outweighs what does not.
FIT_FROM = 8192
# Laps of a step; of one that takes longer than so many seconds two are enough.
LAPS, LONG = 5, 1.0


@dataclass(frozen=True)
class Stack:
    """A stack of layers: the words that it changes in the recipe, None for an LSTM, and the time of a layer."""

    words: Sequence[str] | None
    time: str
    source: str

    def build(self) -> tuple[Layers, int]:
        """Build the layers, (1, n, D) -> (1, n, D), and return them and D."""
        fields = load(RECIPE, self.words or ()).model.config
        if self.words is None:
            return recurrent_layer(fields["hidden_size"], fields["num_hidden_layers"]), fields["hidden_size"]
        model = QkvDecoderModel(QkvDecoderConfig(**fields, vocab_size=1))
        return lambda hidden: model(inputs_embeds=hidden, use_cache=False)[0], model.config.hidden_size


STACKS = {name: Stack(**fields) for name, fields in table(__file__).items()}


def measure_stacks(lengths: Sequence[int], most_seconds: float) -> dict[str, dict[str, Curve]]:
    """Measure the CPU seconds and the peak memory of a forward pass and of a training step, by stack and length.

    A stack is left where its next step might take longer than `most_seconds`: four times as long as the last.
    """
    curves: dict[str, dict[str, Curve]] = {}
    for name, stack in STACKS.items():
        say(f"costs of long texts: {name}")
        layers, width = stack.build()
        own: dict[str, Curve] = {"forward_seconds": [], "step_seconds": [], "forward_bytes": [], "step_bytes": []}
        for length in lengths:
            hidden = torch.randn(1, length, width, generator=torch.Generator().manual_seed(length))
            for what, value in costs(layers, hidden).items():
                own[what].append([length, value])
            if 4 * own["step_seconds"][-1][1] > most_seconds:
                break
        curves[name] = own
    return curves


def costs(layers: Layers, hidden: Tensor) -> dict[str, float]:
    """Measure a forward pass and a training step on one text."""
    forward, step = partial(forward_seconds, layers, hidden), partial(step_seconds, layers, hidden)
    return {
        "forward_seconds": least_seconds(forward), "step_seconds": least_seconds(step),
        "forward_bytes": peak_bytes(forward), "step_bytes": peak_bytes(step),
    }  # fmt: skip


def step_seconds(layers: Layers, hidden: Tensor) -> float:
    """Return the CPU seconds of forward and backward."""
    began = time.process_time()
    layers(hidden).sum().backward()
    return time.process_time() - began


def least_seconds(lap: Callable[[], float]) -> float:
    """Return the seconds of the fastest lap."""
    laps = [lap(), lap()]
    while len(laps) < LAPS and laps[-1] < LONG:
        laps.append(lap())
    return min(laps)


def peak_bytes(step: Callable[[], object]) -> int:
    """Return the bytes of the tensors that a step makes, at their peak."""
    with MemoryTracker() as tracker:
        step()
    return tracker.peak.total()


def fitted_exponent(curve: Curve) -> float | None:
    """Fit the exponent by which a cost grows with the length; None where there are no two lengths to fit it to."""
    points = [(math.log(length), math.log(cost)) for length, cost in curve if length >= FIT_FROM]
    return linear_regression(*zip(*points, strict=True)).slope if len(points) > 1 else None


def recalled() -> dict[str, dict[str, Any]]:
    """Return what each stack reached on the recipe's task, and its CPU seconds of training, from the recipe's card."""
    models = (read_card(RECIPE) or {}).get("comparison", {}).get("models", {})
    keys = {name: name if stack.words else "qkv" for name, stack in STACKS.items() if stack.words is not None}
    return {
        name: {"accuracy": models[key]["metrics"]["test"]["accuracy"], "training_cpu_s": models[key]["training_cpu_s"]}
        for name, key in keys.items()
        if key in models
    }
