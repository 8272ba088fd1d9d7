"""Rows between stock weights and those of a contender, and contenders that are not there."""

import pytest
import torch
from torch import nn

from qkv.scripts.common import extras
from qkv.scripts.lab.benchmarking.candidate import AbsentError, Row, check_installed, copied, of_rows


class Stock(nn.Linear):
    """A model of two weights, as stock ones are called."""

    device, dtype = torch.device("cpu"), torch.float32


def test_a_row_gives_the_weight_and_its_gradient() -> None:
    """With y = scale x + shift, the gradient by y is that by x over the scale."""
    stock = {"x": torch.tensor([1.0, 2.0])}
    row = Row(lambda tensors: tensors["x"], scale=4.0, shift=torch.tensor([0.0, -1.0]))
    given = torch.tensor([3.0, 5.0])
    weight = row.weight(stock).requires_grad_()
    (((weight - row.shift) / row.scale) * given).sum().backward()
    assert weight.tolist() == [4.0, 7.0] and torch.equal(weight.grad, row.gradient({"x": given}))


def test_a_model_is_filled_by_rows_that_name_all_its_weights() -> None:
    stock = Stock(3, 2)
    taken = of_rows(nn.Linear(3, 2, bias=False), stock, {"weight": copied("weight")})
    assert torch.equal(taken.model.weight, stock.weight) and taken.model.weight is not stock.weight
    with pytest.raises(ValueError, match="differ in bias"):
        of_rows(nn.Linear(3, 2), stock, {"weight": copied("weight")})


def test_what_is_not_installed_is_absent_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda module: None)
    for module, package in (("timm", "timm"), ("x_transformers", "x-transformers")):
        with pytest.raises(AbsentError, match=rf"{package} is not installed; .* pip install 'qkv\[benchmark\]'"):
            check_installed(module)
