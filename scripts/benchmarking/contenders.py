"""The contenders: programs that run the same weights on the same batch."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

import qkv
from qkv.modeling.conversion.config import lost_on_reading
from qkv.modeling.conversion.convert import chosen, official_pairs, rows
from qkv.modeling.conversion.weights import convert
from qkv.scripts.benchmarking.workloads import Workload
from qkv.scripts.common.words import did_you_mean

Tensors = dict[str, Tensor]
OURS, THEIRS = "qkv", "transformers"


class AbsentError(Exception):
    """A contender cannot run a workload here; the message says why."""


@dataclass(frozen=True)
class Candidate:
    """A model with the stock model's weights, and how gradients of those are named and laid out in it."""

    model: nn.Module
    translated: Callable[[Tensors], Tensors]


@dataclass(frozen=True)
class Contender:
    """A program, how it takes over a stock model, and whether its model is compiled."""

    about: str
    take_over: Callable[[PreTrainedModel, Workload], Candidate]
    compiled: bool = False


def ours(stock: PreTrainedModel, workload: Workload) -> Candidate:
    """Convert a stock model to qkv."""
    model = qkv.from_transformers(stock)
    table = rows(*chosen(official_pairs(stock), stock, lost_on_reading))
    return Candidate(model, lambda gradients: convert(table, gradients, model.config, reading=True))


def theirs(stock: PreTrainedModel, workload: Workload) -> Candidate:
    """Copy a stock model."""
    return Candidate(copy.deepcopy(stock), lambda gradients: gradients)


CONTENDERS = {
    OURS: Contender("this package, called as its users call it", ours),
    THEIRS: Contender("transformers' own class, with sdpa", theirs),
    "qkv-compiled": Contender("this package under torch.compile", ours, compiled=True),
    "transformers-compiled": Contender("transformers' own class under torch.compile", theirs, compiled=True),
}


def chosen_contenders(words: Sequence[str]) -> list[str]:
    """Return the contenders of that name, or all; transformers is always among them, for it is what others equal."""
    for word in words:
        if word not in CONTENDERS:
            raise ValueError(f"there is no contender {word!r}; {did_you_mean(word, [*CONTENDERS], 'contenders')}")
    return [name for name in CONTENDERS if not words or name in words or name == THEIRS]


def stock_model(workload: Workload, seed: int, device: torch.device, dtype: torch.dtype) -> PreTrainedModel:
    """Build the stock model of a workload, which ends no text by itself."""
    import transformers

    shape = workload.model
    official: Any = getattr(transformers, shape.official)
    torch.manual_seed(seed)
    config = official.config_class(**shape.config)
    config._attn_implementation = "sdpa"
    model = official(config, **shape.options)
    if model.can_generate():
        settings = model.generation_config
        settings.eos_token_id, settings.pad_token_id = None, 0
    # Training keeps its weights in single precision, and computes in a lower one.
    return model.to(device, torch.float32 if workload.step == "train" else dtype)


def candidate(name: str, stock: PreTrainedModel, workload: Workload) -> Candidate:
    """Return a contender's model; AbsentError where it has none."""
    contender = CONTENDERS[name]
    taken = contender.take_over(stock, workload)
    if contender.compiled:
        compile_model(taken.model, workload)
    return taken


def compile_model(model: Any, workload: Workload) -> None:
    """Compile a model in place; where it generates, a step with a static cache, as `generate` does on GPUs."""
    if workload.step != "generate":
        model.compile()
        return
    from transformers import CompileConfig

    settings: Any = CompileConfig(mode="default" if model.device.type == "cpu" else "reduce-overhead")
    settings._compile_all_devices = True
    model.generation_config.cache_implementation = "static"
    model.generation_config.compile_config = settings
