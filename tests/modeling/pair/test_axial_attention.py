"""Attention along rows is the papers', with a bias from pairs, whole and in chunks."""

import pytest
import torch
from torch import nn

import reference
from comparison import assert_same, draw, gate_of, jittered, linear_of, norm_of
from comparison import pair as config_of
from qkv.modeling.context import LayerContext
from qkv.modeling.pair.axial_attention import (
    AxialAttention,
    PairBias,
    TriangleAttention,
    in_chunks,
    mask_scores,
    with_bias,
)

LENGTH = 4
REAL = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 0]]).bool()

COMPUTED = pytest.mark.parametrize(("backend", "chunk_size"), [("eager", LENGTH), ("eager", 1), ("sdpa", 3)])


def weights_of(module):
    layers = (module.q_proj, module.k_proj, module.v_proj, module.o_proj)
    return [tensor for layer in layers for tensor in (layer.weight, layer.bias)]


@COMPUTED
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_rows_attend_within_themselves(padded, biased, chunk_size, backend):
    module, grid = jittered(AxialAttention(config_of().residue_stack(), 0)).eval(), draw(2, 3, LENGTH, 8)
    bias = draw(2, 2, LENGTH, LENGTH) if biased else None
    added = mask_scores(bias, REAL if padded else None)
    context = with_bias(LayerContext(backend=backend, weights=backend == "eager"), added)
    actual, weights = module(grid, context, chunk_size=chunk_size)
    expected, expected_weights = [], []
    for row in range(3):
        given = {
            "visible": (lambda b, t, s: bool(REAL[b, s])) if padded else None,
            "bias": bias,
            "gate": gate_of(module),
        }
        mixed, shares = reference.multi_head_attention(grid[:, row], grid[:, row], *weights_of(module), 2, 2, **given)
        expected.append(mixed)
        expected_weights.append(shares)
    leaves = [grid, *module.parameters(), *([bias] if biased else [])]
    assert_same(actual, torch.stack(expected, dim=1), *leaves)
    if backend == "eager":
        assert_same(weights, torch.stack(expected_weights, dim=1), grid)
    else:
        assert weights is None


def test_bias_from_pairs():
    module, pair = jittered(PairBias(config_of().pair_stack(), 2)), draw(2, LENGTH, LENGTH, 6)
    expected = linear_of(module.proj, norm_of(module.norm, pair))
    assert_same(module(pair), expected.permute(0, 3, 1, 2), pair, *module.parameters())


@COMPUTED
@pytest.mark.parametrize("ending", [False, True], ids=["starting", "ending"])
@pytest.mark.parametrize("padded", [False, True])
def test_triangle_attention(padded, ending, chunk_size, backend):
    module, pair = (
        jittered(TriangleAttention(config_of().pair_stack(), 0, ending=ending)).eval(),
        draw(2, LENGTH, LENGTH, 6),
    )
    mask = REAL if padded else None
    actual = module(pair, mask, LayerContext(backend=backend), chunk_size=chunk_size)
    expected = []
    for row, real in zip(pair, REAL if padded else torch.ones_like(REAL), strict=True):
        own = module.attention
        heads = [linear_of(layer, row).chunk(3, dim=-1) for layer in (own.q_proj, own.k_proj, own.v_proj)]
        biases = linear_of(module.bias_proj, row).unbind(-1)
        mixed = [
            reference.triangle_attention(*parts, bias, real, ending=ending)
            for *parts, bias in zip(*heads, biases, strict=True)
        ]
        gated = reference.gate_values(torch.cat(mixed, dim=-1), row, gate_of(own))
        expected.append(linear_of(own.o_proj, gated))
    assert_same(actual, torch.stack(expected), pair, *module.parameters())


class Doubled(nn.Module):
    """Rows times two, two rows at a time."""

    def forward(self, rows):
        return in_chunks(lambda part: (2 * part, None), rows, 2)[0]


def test_an_exported_graph_has_any_number_of_rows():
    free = ({1: torch.export.Dim("rows", min=3, max=99)},)
    program = torch.export.export(Doubled(), (draw(2, 5, LENGTH),), dynamic_shapes=free).module()
    rows = draw(2, 8, LENGTH)
    assert torch.equal(program(rows), 2 * rows)
