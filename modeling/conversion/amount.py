"""Limits of what a config may describe beside the files of its weights, checked before it is made in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook
from transformers import PreTrainedConfig, PreTrainedModel

# So many parameters more than the files hold are made, so that what is missing can be named.
SLACK = 2**20
# And so many tensors more than twice those of the files.
TENSORS = 1000


def check_amount(
    model_class: type[PreTrainedModel], config: PreTrainedConfig, weights: dict[str, torch.Tensor], file: Path
) -> None:
    """Raise ValueError where the config of a file describes much more than there is, which would be made before missed.

    What differs by less is named when the model was loaded. A byte holds two numbers at most.
    """
    name, tensors = model_class.__name__, f"many more tensors than the {len(weights)} of its files"
    refusal = f"{file} describes a {name} of {tensors}; mend its numbers of layers, or download it again"
    with at_most(2 * len(weights) + TENSORS, refusal), torch.device("meta"):
        needed = sum(parameter.numel() for parameter in model_class(config).parameters())
    held = sum(tensor.nbytes for tensor in weights.values())
    if needed > 2 * held + SLACK:
        raise ValueError(
            f"{file} describes a {name} of {needed:,} parameters, and its files hold {held:,} bytes; mend the sizes "
            "there, or download it again"
        )


@contextmanager
def at_most(most: int, refusal: str) -> Iterator[None]:
    """Raise ValueError with this sentence as soon as more parameters are made within, so by the first of many layers.

    On the meta device they take no memory, but time, and their modules take both.
    """
    numbers = count(1)

    def register(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter) -> None:
        if next(numbers) > most:
            raise ValueError(refusal)

    hook = register_module_parameter_registration_hook(register)
    try:
        yield
    finally:
        hook.remove()
