"""Thousands of calls of `generate`, in one thread and in several.

`main` runs in a process that was forked for it, and writes what it found as JSON.
"""

import json
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from watching import anonymous_memory, deadline, growth

import checkout  # noqa: F401  makes qkv importable
import tiny
from speaking import build

# Models by name: a kind of tests/support/tiny.yaml and what differs from it.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    **{kind: (kind, {}) for kind in tiny.KINDS["decoder"]},
    **{kind: (kind, {}) for kind in tiny.KINDS["encoder_decoder"]},
    **{kind: (kind, {}) for kind in tiny.KINDS["recurrent"]},
    "speech": ("speech", {}),
    "speech, plain": ("plain", {}),
    **{
        f"decoder, {position}": ("gpt2", {"position": position})
        for position in ("sinusoidal", "sinusoidal_concat", "sinusoidal_t2t", "xpos", "t5", "kerple")
    },
    "decoder, sliding": ("gpt2", {"pattern": "sliding", "sliding_window": 4}),
    "decoder, block_sparse and full": ("llama", {"pattern": ["block_sparse", "full"], "block_size": 2}),
}
SPEECH = ("speech", "speech, plain")
OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "greedy, weights not laid out": {},
    "no cache": {"use_cache": False},
    "beams": {"num_beams": 3},
    "two of four beams": {"num_beams": 4, "num_return_sequences": 2},
    "sampling": {"do_sample": True, "top_k": 0, "temperature": 2.0},
    "beam sampling": {"do_sample": True, "num_beams": 2},
    "static cache": {"cache_implementation": "static"},
    "assisted": {},
    "prompt lookup": {"prompt_lookup_num_tokens": 2},
    "early exit": {"assistant_early_exit": 1},
    "chunks": {"prefill_chunk_size": 2},
}
# For one row alone, and not for every family.
ALONE = ("assisted", "prompt lookup", "early exit")
STEPWISE = ("static cache", "chunks", *ALONE)


@dataclass(frozen=True)
class Call:
    """A call of `generate`: a model, a way of decoding, sizes, and the seed of what it reads and samples."""

    model: str
    way: str
    batch: int
    length: int
    new: int
    seed: int

    @property
    def assistant(self) -> str | None:
        """The model that helps."""
        return f"{self.model}, one layer" if self.way == "assisted" else None

    def inputs(self, model: PreTrainedModel) -> dict[str, Tensor]:
        """Rows of different length, padded on the left before a continuation, on the right in a source."""
        if self.model in SPEECH:
            return tiny.audio(self.length, plain=self.model != "speech", batch=self.batch)
        inputs = tiny.text(batch=self.batch, length=self.length, seed=self.seed)
        if model.config.is_encoder_decoder:
            return inputs
        padding = (inputs["attention_mask"] == 0).sum(1).tolist()
        return {
            name: torch.stack([row.roll(by) for row, by in zip(value, padding, strict=True)])
            for name, value in inputs.items()
        }

    def run(self, models: Callable[[str], PreTrainedModel]) -> Tensor:
        """The tokens."""
        model = models(self.model)
        model.lay_out_weights = self.way != "greedy, weights not laid out"
        helper = {"assistant_model": models(self.assistant)} if self.assistant else {}
        torch.manual_seed(self.seed)
        options = {"do_sample": False, "max_new_tokens": self.new, **OPTIONS[self.way], **helper}
        return model.generate(**self.inputs(model), **options)


def made(name: str) -> PreTrainedModel:
    """The model of a name."""
    one_layer = name.endswith(", one layer")
    kind, fields = MODELS[name.removesuffix(", one layer")]
    return build(kind, **fields, **({"num_hidden_layers": 1} if one_layer else {}))


shared = cache(made)


def ways(model: str) -> list[str]:
    """The ways of decoding that a model has."""
    kind, fields = MODELS[model]
    if kind in tiny.KINDS["recurrent"]:
        return [way for way in OPTIONS if way not in STEPWISE] + ["static cache"]
    if model in SPEECH:
        return [way for way in OPTIONS if way not in ("chunks", *ALONE)]
    if kind in tiny.KINDS["encoder_decoder"]:
        return [way for way in OPTIONS if way not in ("prompt lookup", "early exit", "assisted")]
    if kind in ("linear", "deltanet"):  # a state keeps no tokens to go back to
        return [way for way in OPTIONS if way not in ALONE]
    helped = kind in ("gpt2", "llama", "bloom", "neox") and not isinstance(fields.get("pattern"), list)
    return [way for way in OPTIONS if helped or way not in ("assisted", "early exit")]


def calls(count: int, seed: int) -> list[Call]:
    """As many different calls, each way of each model among them."""
    chance = random.Random(f"calls {seed}")
    pairs = [(model, way) for model in MODELS for way in ways(model)]
    made = []
    for number in range(count):
        model, way = pairs[number % len(pairs)]
        batch = 1 if way in ALONE else chance.randint(1, 5)
        sizes = chance.randint(3, 14), chance.randint(1, 6)
        made.append(Call(model, way, batch, *sizes, chance.randrange(2**31)))
    return made


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
            tokens = call.run(shared)
        if not torch.equal(first.setdefault(call, tokens), tokens):
            different.append(str(call))
        if number > warm and number % every == 0:
            memory.append(anonymous_memory())
    return {
        "calls": count, "different calls": len(distinct), "models": len({call.model for call in distinct}),
        "ways": len({call.way for call in distinct}), "other tokens": different, "memory growth": growth(memory),
        "memory kB": [memory[0], min(memory), max(memory), memory[-1]],
    }  # fmt: skip


# What transformers lets threads share: the generator of random numbers, a cache that it keeps on the model, and a number
# of layers in the config that is another while the first layers assist.
OF_ONE_THREAD = ("sampling", "beam sampling", "static cache", "early exit")


def threaded(count: int, seed: int, threads: int, *, one_model: bool) -> dict[str, Any]:
    """Run calls in several threads at once, of one model or of several: how many gave other tokens than alone."""
    chance = random.Random(f"threads {seed} {one_model}")
    own = [call for call in calls(count // 2, seed + 1) if call.way not in OF_ONE_THREAD and "not laid" not in call.way]
    rounds = [[call for call in own if call.model == name] for name in MODELS] if one_model else [own]
    different, done = [], 0
    for group in filter(None, rounds):
        expected = {call: call.run(shared) for call in group}
        share = chance.choices(group, k=max(count // len(rounds), threads))
        with deadline(300), ThreadPoolExecutor(threads) as pool:
            for call, tokens in zip(share, pool.map(lambda call: call.run(shared), share), strict=True):
                done += 1
                if not torch.equal(tokens, expected[call]):
                    different.append(str(call))
    return {"calls": done, "threads": threads, "other tokens": different}


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    "repeated": repeated,
    "threaded": threaded,
}


def main(name: str, options: str, answer: str) -> None:
    torch.set_num_threads(1)
    Path(answer).write_text(json.dumps(JOBS[name](**json.loads(options))))
