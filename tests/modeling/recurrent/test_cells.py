"""Cells and layers against the loops of their papers; padding anywhere; single steps and whole sequences."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import reference
from qkv import QkvRecurrentConfig
from qkv.modeling.recurrent.cells import CELLS, RecurrentDecoderLayer, RecurrentLayer, StepMode, reading_orders, write

INPUT, WIDTH, ROWS, LENGTH = 3, 4, 3, 5
# On the right, on the left, and a hole.
KEEP = torch.tensor([[1, 1, 1, 0, 0], [0, 0, 1, 1, 1], [1, 0, 1, 1, 0]]).bool()


def cell(name: str) -> Any:
    torch.manual_seed(0)
    return CELLS[name](INPUT, WIDTH, batch_first=True).double()


def draw(*shape: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def by_hand(cell: Any, row: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The formula over one row: (T, I), (R, D) -> outputs (T, D), state (R, D)."""
    weights, outputs = list(cell.parameters()), []
    for x in row:
        if cell.vectors == 1:
            state = reference.gru_step(x, state[0], *weights)[None]
        else:
            state = torch.stack(reference.lstm_step(x, *state, *weights))
        outputs.append(state[0])
    return torch.stack(outputs), state


def same_gradients(one: Tensor, other: Tensor, leaves: list[Tensor]) -> None:
    upstream = torch.randn_like(one)
    for mine, right in zip(
        *(torch.autograd.grad(each, leaves, upstream, retain_graph=True) for each in (one, other)), strict=True
    ):
        assert_close(mine, right, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_is_its_formula_over_a_sequence_and_in_single_steps(name: str) -> None:
    made = cell(name)
    inputs, state = draw(ROWS, LENGTH, INPUT), draw(ROWS, made.vectors, WIDTH)
    expected = [by_hand(made, row, start) for row, start in zip(inputs, state, strict=True)]
    outputs, last = made(inputs, state)
    assert_close(outputs, torch.stack([row for row, _ in expected]), rtol=0, atol=1e-12)
    assert_close(last, torch.stack([end for _, end in expected]), rtol=0, atol=1e-12)
    same_gradients(outputs, torch.stack([row for row, _ in expected]), [inputs, state, *made.parameters()])
    stepped, stepped_last = write(made, inputs, state, StepMode(None, stepwise=True))
    assert_close(stepped, outputs, rtol=0, atol=1e-12)
    assert_close(stepped_last, last, rtol=0, atol=1e-12)
    same_gradients(stepped, outputs, [inputs, state, *made.parameters()])


@pytest.mark.parametrize("name", CELLS)
@torch.no_grad()
def test_a_cell_uses_the_weights_it_has_now(name: str) -> None:
    """Offloading, sharding and adapters put other parameters in place without telling torch's flat list."""
    made, other = cell(name), cell(name)
    for key, value in list(other._parameters.items()):
        other._parameters[key] = torch.nn.Parameter(value * 2)
        getattr(made, key).mul_(2)
    inputs, state = draw(ROWS, LENGTH, INPUT), draw(ROWS, made.vectors, WIDTH)
    assert torch.equal(other(inputs, state)[0], made(inputs, state)[0])
    assert torch.equal(other(inputs[:, 0], state)[0], made(inputs[:, 0], state)[0])


def test_reading_orders_put_real_tokens_first() -> None:
    forward, backward = reading_orders(KEEP)
    assert [row[:n].tolist() for row, n in zip(forward, (3, 3, 3), strict=True)] == [[0, 1, 2], [2, 3, 4], [0, 2, 3]]
    assert [row[:n].tolist() for row, n in zip(backward, (3, 3, 3), strict=True)] == [[2, 1, 0], [4, 3, 2], [3, 2, 0]]
    for order in (forward, backward):
        assert torch.equal(order.sort(1).values, torch.arange(LENGTH).expand(ROWS, -1))
    nothing = reading_orders(torch.zeros(1, 3, dtype=torch.bool))
    assert all(order.sort(1).values.tolist() == [[0, 1, 2]] for order in nothing)


def config(name: str, **fields: Any) -> QkvRecurrentConfig:
    return QkvRecurrentConfig(cell=name, hidden_size=WIDTH, encoder_hidden_size=WIDTH, **fields)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("name", CELLS)
def test_a_layer_reads_real_tokens_forward_and_backward(name: str, bidirectional: bool) -> None:
    torch.manual_seed(0)
    layer = RecurrentLayer(config(name, bidirectional=bidirectional), INPUT).double()
    inputs = draw(ROWS, LENGTH, INPUT)
    outputs = layer(inputs, *reading_orders(KEEP))
    assert outputs.shape == (ROWS, LENGTH, WIDTH * (1 + bidirectional))
    for row, keep, ours in zip(inputs, KEEP, outputs, strict=True):
        start = torch.zeros(layer.cells[0].vectors, WIDTH, dtype=torch.float64)
        expected = by_hand(layer.cells[0], row[keep], start)[0]
        if bidirectional:
            expected = torch.cat((expected, by_hand(layer.cells[1], row[keep].flip(0), start)[0].flip(0)), dim=-1)
        assert_close(ours[keep], expected, rtol=0, atol=1e-12)
        same_gradients(ours[keep], expected, [inputs, *layer.parameters()])


@pytest.mark.parametrize("name", CELLS)
def test_padding_leaves_a_writing_state_alone(name: str) -> None:
    torch.manual_seed(0)
    layer = RecurrentDecoderLayer(config(name)).double()
    inputs, state = draw(ROWS, LENGTH, WIDTH), draw(ROWS, layer.cell.vectors, WIDTH)
    steps, states = layer(inputs, state, StepMode(KEEP, stepwise=True))
    fused, _ = layer(inputs, state, StepMode(KEEP, stepwise=False))
    for index, keep in enumerate(KEEP):
        expected, last = by_hand(layer.cell, inputs[index][keep], state[index])
        assert_close(steps[index][keep], expected, rtol=0, atol=1e-12)
        assert_close(fused[index][keep], expected, rtol=0, atol=1e-12)
        assert_close(states[index], last, rtol=0, atol=1e-12)


def test_dropout_acts_on_what_a_layer_gives_not_on_its_state() -> None:
    torch.manual_seed(0)
    layer = RecurrentDecoderLayer(config("gru", hidden_dropout=0.5)).double()
    inputs, state = draw(ROWS, LENGTH, WIDTH), draw(ROWS, 1, WIDTH)
    plain, states = copy.deepcopy(layer).eval()(inputs, state, StepMode(None, stepwise=True))
    dropped, same = layer(inputs, state, StepMode(None, stepwise=True))
    assert torch.equal(states, same)
    kept = dropped != 0
    assert 0 < kept.sum() < kept.numel() and torch.equal(dropped[kept], 2 * plain[kept])
