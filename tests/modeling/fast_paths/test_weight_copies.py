"""Copies of weights: the products of the linear maps, for every number of rows; `test_generation.py` changes weights."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from qkv.modeling.fast_paths import weight_copies
from qkv.modeling.fast_paths.weight_copies import COPIES, PACKED_ROWS, PATIENCE, WIDE, LinearStep, product_of

MAPS = [
    *([nn.Linear(6, 12)], [nn.Linear(6, 100, bias=False)], [nn.Linear(12, 6)]),
    *([nn.Linear(6, 8), nn.Linear(6, 4, bias=False)], [nn.Linear(6, 3, bias=False) for _ in range(3)]),
]


@pytest.mark.parametrize("wide", [1, WIDE])
@pytest.mark.parametrize("rows", [1, 2, 4, 64, 65])
@pytest.mark.parametrize("linears", MAPS, ids=str)
def test_products_are_those_of_the_maps(linears: list[nn.Linear], rows: int, wide: int) -> None:
    owner = nn.ModuleList(linears)
    product, hidden = product_of(owner, linears, wide), torch.randn(rows, linears[0].in_features)
    with torch.no_grad():
        expected = torch.cat([linear(hidden) for linear in linears], -1)
        for _ in range(PATIENCE + 2):
            assert_close(product(hidden), expected, rtol=1e-5, atol=1e-6)
    outputs = sum(each.out_features for each in linears)
    copied = outputs >= wide * hidden.shape[1] if rows == 1 else rows in PACKED_ROWS
    assert bool(COPIES[owner].laid_out[1]) is copied


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("name", ["weight", "bias"])
def test_a_changed_weight_or_bias_is_seen(name: str, rows: int) -> None:
    owner, hidden = nn.Linear(6, 12), torch.randn(rows, 6)
    with torch.no_grad():
        for _ in range(2):
            product = product_of(owner, (owner,), 1)
            for _ in range(PATIENCE):
                assert_close(product(hidden), owner(hidden), rtol=1e-5, atol=1e-6)
            first = COPIES[owner]
            assert product_of(owner, (owner,), 1).func.__self__ is first
            getattr(owner, name).data.view(-1)[3] += 0.5
            assert product_of(owner, (owner,), 1).func.__self__ is not first


def test_weights_of_another_kind_have_no_copies() -> None:
    owner = nn.Linear(6, 100).double()
    product, hidden = product_of(owner, (owner,), 1), torch.randn(1, 6, dtype=torch.float64)
    for _ in range(PATIENCE):
        assert torch.equal(product(hidden), owner(hidden))
    assert owner not in COPIES


@pytest.mark.parametrize("shape", [(4, 1, 6), (2, 2, 6), (4, 6), (6,), (0, 3, 6)], ids=str)
def test_a_shorter_forward_takes_every_shape(shape: tuple[int, ...]) -> None:
    owner, hidden = nn.Linear(6, 100), torch.randn(shape)
    forward = LinearStep(owner, 1)
    with torch.no_grad():
        for _ in range(PATIENCE + 1):
            assert_close(forward(hidden), owner(hidden), rtol=1e-5, atol=1e-6)
        assert forward(hidden.requires_grad_()).shape == owner(hidden).shape
    assert forward(hidden).requires_grad


def test_without_mkl_several_rows_take_the_plain_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_copies, "PACKED_ROWS", ())
    owner, hidden = nn.Linear(6, 100), torch.randn(4, 6)
    product = product_of(owner, (owner,), 1)
    for _ in range(PATIENCE + 1):
        assert torch.equal(product(hidden), owner(hidden))
