"""How long does a training step take, by length? In turns, on equal work; and what does a layer alone cost?"""

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
from qkv.scripts.history.contenders import TRANSFORMER, reversals

Curve = list[list[float]]


def steps(
    models: Mapping[str, PreTrainedModel], lengths: Sequence[int], letters: int, turns: int
) -> dict[str, dict[str, Any]]:
    """Seconds of a training step by length, about as many letters each time, of all models in turns.

    With them the seconds over the Transformer's of the same turn: least, median, most. One turn before counts for
    nothing. RuntimeError where models do not score the same targets.
    """
    found: dict[str, dict[str, Any]] = {name: {"seconds": [], "over": []} for name in models}
    trained = {name: Step(deepcopy(model)) for name, model in models.items()}
    for length in lengths:
        batch = reversals(max(letters // length, 1), length, torch.Generator().manual_seed(length))
        laps: dict[str, list[float]] = {name: [] for name in models}
        for turn in range(-1, turns):
            # Who goes first changes, for the second finds a warm machine.
            for name in trained if turn % 2 else reversed(trained):
                laps[name] += [trained[name].timed(batch)] * (turn >= 0)
        refuse_other_work({step.scored for step in trained.values()})
        for name, own in laps.items():
            ratios = sorted(one / other for one, other in zip(own, laps[TRANSFORMER], strict=True))
            found[name]["seconds"].append(median(own))
            found[name]["over"].append([ratios[0], median(ratios), ratios[-1]])
    return found


class Step:
    """Training steps of one model, and the shape of what it scored last."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model.train()
        self.optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        self.scored: tuple[int, ...] = ()

    def timed(self, batch: dict[str, Tensor]) -> float:
        """CPU seconds of forward, backward and update."""
        began = time.process_time()
        output = self.model(**batch, use_cache=False)
        output.loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scored = tuple(output.logits.shape)
        return time.process_time() - began


def refuse_other_work(scored: set[tuple[int, ...]]) -> None:
    """Raise where not all scored as many targets of as many kinds."""
    if len(scored) > 1:
        raise RuntimeError(f"the models scored {sorted(scored)}, which is not the same work; there is nothing to time")


def recurrent_layer(width: int) -> Callable[[Tensor], Tensor]:
    """One LSTM that reads forward: (1, n, D) -> (1, n, D)."""
    config = QkvRecurrentConfig(cell="lstm", bidirectional=False, attention="none", hidden_size=width, vocab_size=2)
    encoder = QkvRecurrentModel(config).encoder
    return lambda hidden: encoder(inputs_embeds=hidden)[0]


def attention_layer(width: int, backend: str) -> Callable[[Tensor], Tensor]:
    """One layer of an encoder, whose attention is that backend's: (1, n, D) -> (1, n, D)."""
    shape = {"hidden_size": width, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 2}
    words: dict[str, Any] = shape | {"position": "none", "attn_implementation": backend}
    config = QkvEncoderConfig(**words)
    encoder = QkvEncoderModel(config).eval()
    return lambda hidden: encoder(inputs_embeds=hidden)[0]


def layers(width: int, lengths: Sequence[int], turns: int) -> dict[str, dict[str, Curve]]:
    """By layer and length: the least seconds of reading one text, and bytes kept for the way back."""
    alone = {
        "LSTM": recurrent_layer(width),
        "attention, eager": attention_layer(width, "eager"),
        "attention, sdpa": attention_layer(width, "sdpa"),
    }
    found: dict[str, dict[str, Curve]] = {name: {"seconds": [], "bytes": []} for name in alone}
    for length in lengths:
        hidden = torch.randn(1, length, width, generator=torch.Generator().manual_seed(length))
        laps: dict[str, list[float]] = {name: [] for name in alone}
        for turn in range(turns + 1):
            for name, layer in alone.items():
                laps[name] += [timed(layer, hidden)] * (turn > 0)
        for name, layer in alone.items():
            found[name]["seconds"].append([length, min(laps[name])])
            found[name]["bytes"].append([length, kept(layer, hidden)])
    return found


@torch.no_grad()
def timed(layer: Callable[[Tensor], Tensor], hidden: Tensor) -> float:
    """CPU seconds of one reading."""
    began = time.process_time()
    layer(hidden)
    return time.process_time() - began


def kept(layer: Callable[[Tensor], Tensor], hidden: Tensor) -> int:
    """Bytes of different tensors that autograd holds on to, weights left out."""
    storages: dict[int, int] = {}

    def hold(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, torch.nn.Parameter) and tensor.numel() >= hidden.shape[1]:
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(hold, lambda tensor: tensor):
        output = layer(hidden.clone().requires_grad_())
    del output
    return sum(storages.values())


def growth(curve: Curve) -> float:
    """The exponent by which a curve grows over its last doubling of length, or what is nearest to one: 1 is linear."""
    (before, less), (after, more) = curve[-2:]
    return math.log(more / less) / math.log(after / before)
