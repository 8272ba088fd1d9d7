"""Triangle multiplication is the papers' sum over third residues, of real ones alone."""

import pytest
import torch

import reference
from comparison import assert_same, draw, jittered, linear_of, norm_of
from comparison import pair as config_of
from qkv.modeling.pair.triangles import TriangleMultiplication

LENGTH = 4
REAL = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 0]]).bool()


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
