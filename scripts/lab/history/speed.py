"""Time training steps by source length, in turns and on equal work, and single layers alone."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from transformers import PreTrainedModel

from qkv import QkvEncoderConfig, QkvEncoderModel, QkvRecurrentConfig
from qkv.modeling import QkvRecurrentModel
from qkv.scripts.lab.history.models import TRANSFORMER, reversals

Curve = list[list[float]]


def time_steps(
    models: Mapping[str, PreTrainedModel], lengths: Sequence[int], tokens: int, turns: int
) -> dict[str, dict[str, Any]]:
    """Time training steps on about as many tokens at each length, of all models in turns after a warm-up turn.

    Returns the median seconds, and the ratio to the Transformer's of the same turn: least, median, most. RuntimeError
    where models do not score the same targets.
    """
    times: dict[str, dict[str, Any]] = {name: {"seconds": [], "over": []} for name in models}
    trained = {name: TimedStep(deepcopy(model)) for name, model in models.items()}
    for length in lengths:
        batch = reversals(max(tokens // length, 1), length, torch.Generator().manual_seed(length))
        laps: dict[str, list[float]] = {name: [] for name in models}
        for turn in range(-1, turns):
            # Who goes first alternates, for the second finds a warm machine.
            for name in trained if turn % 2 else reversed(trained):
                laps[name] += [trained[name].seconds(batch)] * (turn >= 0)
        check_equal_work({step.scored(batch) for step in trained.values()})
        for name, own in laps.items():
            ratios = sorted(one / other for one, other in zip(own, laps[TRANSFORMER], strict=True))
            times[name]["seconds"].append(median(own))
            times[name]["over"].append([ratios[0], median(ratios), ratios[-1]])
    return times


class TimedStep:
    """Training steps of one model."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model.train()
        self.optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def seconds(self, batch: dict[str, Tensor]) -> float:
        """Return the CPU seconds of forward, backward and update."""
        began = time.process_time()
        self.model(**batch, use_cache=False).loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.process_time() - began

    @torch.no_grad()
    def scored(self, batch: dict[str, Tensor]) -> tuple[int, ...]:
        """Return the shape of the logits that a batch's targets are scored with; in training nobody sees them."""
        shape = tuple(self.model.eval()(**batch, use_cache=False).logits.shape)
        self.model.train()
        return shape


def check_equal_work(scored: set[tuple[int, ...]]) -> None:
    """Raise RuntimeError where models scored different targets."""
    if len(scored) > 1:
        raise RuntimeError(f"the models scored {sorted(scored)}, which is not the same work; there is nothing to time")


def recurrent_layer(width: int, layers: int = 1) -> Callable[[Tensor], Tensor]:
    """Build a unidirectional LSTM: (1, n, D) -> (1, n, D)."""
    shape: dict[str, Any] = {"hidden_size": width, "num_hidden_layers": layers, "vocab_size": 2}
    config = QkvRecurrentConfig(cell="lstm", bidirectional=False, attention="none", **shape)
    encoder = QkvRecurrentModel(config).encoder
    return lambda hidden: encoder(inputs_embeds=hidden)[0]


def attention_layer(width: int, backend: str) -> Callable[[Tensor], Tensor]:
    """Build an encoder layer with that attention backend: (1, n, D) -> (1, n, D)."""
    shape = {"hidden_size": width, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 2}
    fields: dict[str, Any] = shape | {"position": "none", "attn_implementation": backend}
    encoder = QkvEncoderModel(QkvEncoderConfig(**fields)).eval()
    return lambda hidden: encoder(inputs_embeds=hidden)[0]


def measure_layers(width: int, lengths: Sequence[int], turns: int) -> dict[str, dict[str, Curve]]:
    """Measure by layer and length the least seconds of a forward pass, and the bytes kept for backward."""
    layers = {
        "LSTM": recurrent_layer(width),
        "attention, eager": attention_layer(width, "eager"),
        "attention, sdpa": attention_layer(width, "sdpa"),
    }
    curves: dict[str, dict[str, Curve]] = {name: {"seconds": [], "bytes": []} for name in layers}
    for length in lengths:
        hidden = torch.randn(1, length, width, generator=torch.Generator().manual_seed(length))
        laps: dict[str, list[float]] = {name: [] for name in layers}
        for turn in range(turns + 1):
            for name, layer in layers.items():
                laps[name] += [forward_seconds(layer, hidden)] * (turn > 0)
        for name, layer in layers.items():
            curves[name]["seconds"].append([length, min(laps[name])])
            curves[name]["bytes"].append([length, saved_bytes(layer, hidden)])
    return curves


@torch.no_grad()
def forward_seconds(layer: Callable[[Tensor], Tensor], hidden: Tensor) -> float:
    """Return the CPU seconds of a forward pass."""
    began = time.process_time()
    layer(hidden)
    return time.process_time() - began


def saved_bytes(layer: Callable[[Tensor], Tensor], hidden: Tensor) -> int:
    """Return the bytes of the tensors that autograd saves for backward, weights apart."""
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, torch.nn.Parameter) and tensor.numel() >= hidden.shape[1]:
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        output = layer(hidden.clone().requires_grad_())
    del output
    return sum(storages.values())


def growth(curve: Curve) -> float:
    """Return the exponent by which a curve grows over its last doubling of length, or what is nearest to one."""
    (before, less), (after, more) = curve[-2:]
    return math.log(more / less) / math.log(after / before)
