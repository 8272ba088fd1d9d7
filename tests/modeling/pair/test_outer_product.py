"""Outer products and products of triangles are the papers', of real residues alone, whole and in chunks."""

import pytest
import torch

import reference
from comparison import assert_same, draw, jittered, linear_of, norm_of
from comparison import pair as config_of
from qkv.modeling.pair.outer_product import OuterProductDifference, OuterProductMean, TriangleMultiplication

LENGTH = 4
REAL = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 0]]).bool()

SEQUENCES = torch.tensor([[1, 1, 1], [1, 0, 1]]).bool()


@pytest.mark.parametrize("chunk_size", [3, LENGTH])
@pytest.mark.parametrize("padded", [False, True])
def test_outer_product_mean(padded, chunk_size):
    module, rows = jittered(OuterProductMean(config_of().residue_stack(), 3, 6)), draw(2, 3, LENGTH, 8)
    mask = (SEQUENCES[..., None] & REAL[:, None]) if padded else None
    actual = module(rows, mask, chunk_size)
    expected = []
    for row, real in zip(rows, SEQUENCES if padded else torch.ones_like(SEQUENCES), strict=True):
        first, second = linear_of(module.proj, norm_of(module.norm, row)).chunk(2, dim=-1)
        expected.append(linear_of(module.pair_proj, reference.outer_product_mean(first, second, real)))
    kept = (REAL[:, :, None] & REAL[:, None]) if padded else torch.ones(2, LENGTH, LENGTH).bool()
    assert_same(actual[kept], torch.stack(expected)[kept], rows, *module.parameters())


def test_outer_product_difference():
    module, hidden = jittered(OuterProductDifference(config_of().residue_stack(), 3, 6)), draw(2, LENGTH, 8)
    expected = []
    for row in hidden:
        first, second = linear_of(module.proj, norm_of(module.norm, row)).chunk(2, dim=-1)
        expected.append(linear_of(module.pair_proj, reference.outer_product_difference(first, second)))
    assert_same(module(hidden), torch.stack(expected), hidden, *module.parameters())
    assert torch.equal(module(torch.stack((hidden, hidden + 1), dim=1)), module(hidden))


def gate_and_project(x, gate, projection):
    return reference.sigmoid(linear_of(gate, x)) * linear_of(projection, x)


@pytest.mark.parametrize("incoming", [False, True], ids=["outgoing", "incoming"])
@pytest.mark.parametrize("padded", [False, True])
def test_triangle_multiplication(padded, incoming):
    module = jittered(TriangleMultiplication(config_of().pair_stack(), incoming=incoming))
    pair = draw(2, LENGTH, LENGTH, 6)
    actual = module(pair, REAL if padded else None)
    rows = []
    for row, real in zip(pair, REAL if padded else torch.ones_like(REAL), strict=True):
        first = gate_and_project(row, module.a_gate, module.a_proj)
        second = gate_and_project(row, module.b_gate, module.b_proj)
        mixed = reference.triangle_multiplication(first, second, real, incoming=incoming)
        gate = reference.sigmoid(linear_of(module.o_gate, row))
        rows.append(gate * linear_of(module.o_proj, norm_of(module.norm, mixed)))
    assert_same(actual, torch.stack(rows), pair, *module.parameters())
