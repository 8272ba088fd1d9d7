"""What of a step depends on numbers? Where there are none, something of the same shapes stands in for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed import _functional_collectives as collectives
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from qkv.modeling import loss, matching

aten = torch.ops.aten


def in_order(logits: Tensor, boxes: Tensor, objects: matching.Objects, config: Any) -> matching.Pairs:
    """Slot i takes object i: scipy, which finds out what is cheapest, needs numbers, and gives as many pairs."""
    numbers = [torch.arange(len(found["boxes"])) for found in objects]
    return list(zip(numbers, numbers, strict=True))


def as_many(images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor, int]:
    """The pairs of all processes, of which none has to be asked how many it has, as NCCL gathers them."""
    if not loss.together():
        return images, texts, 0
    group: Any = distributed.group.WORLD
    gathered = collectives.all_gather_tensor_autograd(torch.stack((images, texts), 1), 0, group)
    all_images, all_texts = gathered.unbind(1)
    return all_images, all_texts, 0


def all_due(values: Tensor, indices: list[Any]) -> Tensor | None:
    """Where a mask chooses among values, it chooses all of them; None for other indices."""
    chosen = len(indices) == 1 and indices[0].dtype == torch.bool and indices[0].shape == values.shape
    return values.flatten().clone() if chosen else None


def aligned(scores: Tensor, labels: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    """The loss of each row, and how likely each beginning of its labels is at each moment, with blanks between them."""
    moments, rows, _ = scores.shape
    return scores.new_empty(rows), scores.new_empty(rows, moments, 2 * (labels.numel() // rows) + 1)


def aligned_backward(gradient: Tensor, scores: Tensor, *others: Any) -> Tensor:
    """The gradient of all scores."""
    return torch.empty_like(scores)


# oneDNN, which no GPU has, would run an LSTM in one operator that nobody knows the products of.
STAND_INS: tuple[tuple[Any, str, Any], ...] = (
    (matching, "matched", in_order),
    (loss, "competitors", as_many),
    (torch.backends.mkldnn, "enabled", False),
)
# What an operator gives of which the size, or the way to it, depends on numbers.
OPERATORS: dict[Any, Callable[..., Any]] = {
    aten.index.Tensor: all_due,
    aten._ctc_loss.Tensor: aligned,
    aten._ctc_loss_backward.Tensor: aligned_backward,
}


class Blind(TorchDispatchMode):
    """Answers for operators that look at numbers."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            # It will be back with what this process holds of them.
            return NotImplemented
        found = OPERATORS[function](*args, **(kwargs or {})) if function in OPERATORS else None
        return function(*args, **(kwargs or {})) if found is None else found


@contextmanager
def blind() -> Iterator[None]:
    """Within this a step can be taken on tensors without numbers, whatever model takes it."""
    real = [(module, name, getattr(module, name)) for module, name, _ in STAND_INS]
    try:
        for module, name, stand_in in STAND_INS:
            setattr(module, name, stand_in)
        with Blind():
            yield
    finally:
        for module, name, value in real:
            setattr(module, name, value)
