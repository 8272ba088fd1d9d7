"""A contender's model with the weights of a stock model, and the way from one's tensors to the other's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from qkv.scripts.common.extras import MissingExtraError, require

Tensors = dict[str, Tensor]


class AbsentError(Exception):
    """A contender cannot run a workload here; the message says why."""


@dataclass(frozen=True)
class Candidate:
    """A model with the stock model's weights, and how gradients of those are laid out in it; None if not compared."""

    model: nn.Module
    translated: Callable[[Tensors], Tensors] | None


@dataclass(frozen=True)
class Row:
    """A tensor as a linear function of stock tensors; the weight itself is `scale` times that, plus `shift`."""

    value: Callable[[Mapping[str, Tensor]], Tensor]
    scale: float = 1.0
    shift: float | Tensor = 0.0

    def weight(self, stock: Mapping[str, Tensor]) -> Tensor:
        """Return the tensor of stock weights."""
        return self.value(stock) * self.scale + self.shift

    def gradient(self, gradients: Mapping[str, Tensor]) -> Tensor:
        """Return the tensor's gradient, of gradients of stock weights."""
        return self.value(gradients) / self.scale


Rows = dict[str, Row]


def copied(name: str) -> Row:
    """Return the row of a tensor that is as in the stock model."""
    return Row(lambda tensors: tensors[name])


def turned(name: str) -> Row:
    """Return the row of a matrix that the stock model stores as (inputs, outputs)."""
    return Row(lambda tensors: tensors[name].T)


def joined(*names: str) -> Row:
    """Return the row of tensors that the stock model keeps apart."""
    return Row(lambda tensors: torch.cat([tensors[name] for name in names]))


def of_rows(model: nn.Module, stock: Any, rows: Rows) -> Candidate:
    """Fill a model by rows, one for each of its weights; ValueError where one has none."""
    weights = {name for name, _ in model.named_parameters()}
    if weights != rows.keys():
        raise ValueError(f"{type(model).__name__} and its rows differ in {min(weights ^ rows.keys())}")
    state = stock.state_dict()
    with torch.no_grad():
        for name, row in rows.items():
            model.get_parameter(name).copy_(row.weight(state))
    model.to(stock.device, stock.dtype)
    return Candidate(model, lambda gradients: {name: row.gradient(gradients) for name, row in rows.items()})


def check_installed(module: str) -> None:
    """Raise AbsentError with the command that installs a module, unless it is there."""
    try:
        require(module)
    except MissingExtraError as error:
        raise AbsentError(str(error)) from error
