"""Thousands of calls of `generate`: `main` runs in a process that was forked for it, and writes its findings as JSON."""

import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel
from watching import anonymous_memory, deadline, growth

import checkout  # noqa: F401  makes qkv importable
import tiny
from qkv.configuration.axes import STATE_KERNELS
from speaking import build

# Models by name: a kind of tests/support/tiny.yaml and what differs from it.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    **{kind: (kind, {}) for family in ("decoder", "encoder_decoder", "recurrent") for kind in tiny.KINDS[family]},
    "speech": ("speech", {}),
    **{f"decoder, {word}": ("gpt2", {"position": word}) for word in ("sinusoidal", "xpos", "t5", "kerple")},
    "decoder, sliding": ("gpt2", {"pattern": "sliding", "sliding_window": 4}),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "greedy, weights not laid out": {},
    "no cache": {"use_cache": False},
    "two of four beams": {"num_beams": 4, "num_return_sequences": 2},
    "sampling": {"do_sample": True, "top_k": 0, "temperature": 2.0},
    "static cache": {"cache_implementation": "static"},
    "chunks": {"prefill_chunk_size": 2},
    # An assistant takes pads that a model wrote for padding, which the cache of a window cannot have inside of a text.
    "assisted": {"suppress_tokens": [tiny.IDS["pad_token_id"]]},
    "prompt lookup": {"prompt_lookup_num_tokens": 2},
    "early exit": {"assistant_early_exit": 1, "suppress_tokens": [tiny.IDS["pad_token_id"]]},
}
# For one row alone, by models of some kinds: a state of all tokens is not cropped to those that are right.
CROPPED = tuple(kind for kind, fields in tiny.KINDS["decoder"].items() if fields.get("kernel") not in STATE_KERNELS)
ALONE = {"assisted": ("gpt2", "llama", "bloom", "neox"), "prompt lookup": CROPPED}
ALONE["early exit"] = ALONE["assisted"]


class Call(NamedTuple):
    """A call of `generate`: a model, a way of decoding, sizes, and the seed of what it reads and samples."""

    model: str
    way: str
    batch: int
    length: int
    new: int
    seed: int

    def inputs(self, model: PreTrainedModel) -> dict[str, Tensor]:
        """Rows of different length, padded on the left before a continuation, on the right in a source."""
        if self.model == "speech":
            return tiny.audio(self.length, batch=self.batch)
        inputs = tiny.text(batch=self.batch, length=self.length, seed=self.seed)
        return inputs if model.config.is_encoder_decoder else {name: value.flip(1) for name, value in inputs.items()}

    def run(self) -> Tensor:
        """The tokens."""
        model = made(self.model)
        model.lay_out_weights = self.way != "greedy, weights not laid out"
        helper = {"assistant_model": made(self.model, one_layer=True)} if self.way == "assisted" else {}
        torch.manual_seed(self.seed)
        options = {"do_sample": False, "max_new_tokens": self.new, **OPTIONS[self.way], **helper}
        return model.generate(**self.inputs(model), **options)


@cache
def made(name: str, *, one_layer: bool = False) -> PreTrainedModel:
    """The model of a name, or one with its first layer alone."""
    kind, fields = MODELS[name]
    return build(kind, **fields, **({"num_hidden_layers": 1} if one_layer else {}))


def takes(model: str, way: str) -> bool:
    """Return True where a model has a way of decoding."""
    kind, _ = MODELS[model]
    if way == "chunks":
        return kind != "speech" and kind not in tiny.KINDS["recurrent"]
    return way not in ALONE or kind in ALONE[way]


def calls(count: int, seed: int) -> list[Call]:
    """As many different calls, each way of each model among them."""
    chance = random.Random(f"calls {seed}")
    pairs = [(model, way) for model in MODELS for way in OPTIONS if takes(model, way)]
    found = []
    for number in range(count):
        model, way = pairs[number % len(pairs)]
        batch = 1 if way in ALONE else chance.randint(1, 5)
        found.append(Call(model, way, batch, chance.randint(3, 14), chance.randint(1, 6), chance.randrange(2**31)))
    return found


def order(calls: list[Call], count: int, seed: int) -> Iterator[Call]:
    """Every call once, and from then on any of them."""
    yield from calls[:count]
    yield from random.Random(f"order {seed}").choices(calls, k=max(count - len(calls), 0))


def repeated(count: int, seed: int) -> dict[str, Any]:
    """Run calls again and again: how many gave other tokens than at first, and the memory on the way."""
    distinct = calls(count // 10, seed)
    first: dict[Call, Tensor] = {}
    different, memory = [], []
    warm, every = count // 5, max(count // 100, 1)
    for number, call in enumerate(order(distinct, count, seed), start=1):
        with deadline(120):
            tokens = call.run()
        if not torch.equal(first.setdefault(call, tokens), tokens):
            different.append(str(call))
        if number > warm and number % every == 0:
            memory.append(anonymous_memory())
    return {
        "calls": count, "different calls": len(distinct), "models": len({call.model for call in distinct}),
        "ways": len({call.way for call in distinct}), "other tokens": different, "memory growth": growth(memory),
        "memory kB": [memory[0], min(memory), max(memory), memory[-1]],
    }  # fmt: skip


def main(options: str, answer: str) -> None:
    torch.set_num_threads(1)
    Path(answer).write_text(json.dumps(repeated(**json.loads(options))))
