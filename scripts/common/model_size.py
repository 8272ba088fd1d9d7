"""Refuse a model that is larger than the machine, before any of it is built."""

import torch
from torch import nn
from transformers import PreTrainedConfig
from transformers.integrations import is_deepspeed_zero3_enabled

from qkv.scripts.common.memory import total_memory

# A model whose config has no larger number takes a few gigabytes at most.
SMALL = 512


def check_size(model_class: type[nn.Module], config: PreTrainedConfig) -> None:
    """Raise ValueError where the weights of a config take more memory than this machine, or its container, has.

    They are counted on the meta device, which takes none, and only where they would be built in main memory.
    """
    if largest_number(config.to_dict()) <= SMALL or not in_main_memory():
        return
    own_class = next(each for each in model_class.__mro__ if each.__module__.startswith("qkv."))
    name, memory = type(config).__name__, total_memory()
    try:
        with torch.device("meta"):
            weights = dict(own_class(config).named_parameters())
    except RuntimeError as error:
        if "overflow" not in str(error):
            raise
        raise ValueError(
            f"the weights of this {name} are more than 64 bits can count; make its sizes smaller"
        ) from None
    needed = sum(weight.nbytes for weight in weights.values())
    if needed > memory:
        largest = max(weights, key=lambda name: weights[name].nbytes)
        raise ValueError(
            f"the weights of this {name} take {needed / 1e9:,.1f} GB, and there are {memory / 1e9:,.1f} GB of memory; "
            f"the largest, {largest}, is {' x '.join(map(str, weights[largest].shape))}: make its sizes smaller, or "
            "build the model without memory, under torch.device('meta')"
        )


def in_main_memory() -> bool:
    """Return True where a new parameter is numbers in main memory: no other device, no shape alone, no part of it."""
    weight = nn.LayerNorm(1).weight
    return type(weight) is nn.Parameter and weight.device.type == "cpu" and not is_deepspeed_zero3_enabled()


def largest_number(value: object) -> int:
    """Return the largest whole number in a config or in its parts."""
    if isinstance(value, dict):
        return max(map(largest_number, value.values()), default=0)
    return value if isinstance(value, int) else 0
