"""Encodings that are added to the input are those of their papers."""

import math
from typing import get_args

import pytest
import torch
from torch.nn import functional as F

import reference
from comparison import PLACES, TRAINED, assert_same, decoder, draw, encoding, exact, vision
from errors import raises_sentence
from qkv.configuration.axes import PositionName
from qkv.modeling.position import POSITIONS
from qkv.modeling.position.hooks import Embedded


@pytest.mark.parametrize("offset", [0, 2])
@pytest.mark.parametrize("places", [PLACES, PLACES[1:]], ids=["rows", "shared row"])
def test_learned(offset, places):
    module, hidden = encoding(decoder(position="learned", position_offset=offset)), draw(2, 7, 6)
    table = module.table.weight
    assert len(table) == TRAINED + offset
    expected = hidden + reference.learned_positions(places + offset, table)
    assert_same(module.embed(Embedded(hidden), places), expected, hidden, table)


@pytest.mark.parametrize(("text", "columns", "rows"), [(4, 3, 3), (0, 5, 3), (12, 9, 1)])
@pytest.mark.parametrize("places", [PLACES, PLACES[1:]], ids=["rows", "shared row"])
def test_grid(text, columns, rows, places):
    module = encoding(decoder(position="grid", text_length=text, grid_columns=columns))
    hidden, table = draw(2, 7, 6), module.table.weight
    assert len(table) == text + rows + columns
    expected = hidden + reference.grid_positions(places, table, text, rows, columns)
    assert_same(module.embed(Embedded(hidden), places), expected, hidden, table)


@pytest.mark.parametrize("size", [(3, 5), (5, 3), (4, 9), (1, 1)])
@pytest.mark.parametrize(("prefix", "offset"), [(0, 0), (1, 0), (2, 3)])
def test_learned_is_resampled_for_other_images(size, prefix, offset):
    tokens = {"class_token": prefix > 0, "distillation_token": prefix > 1, "pooling": "mean"}
    module = encoding(vision(position="learned", position_offset=offset, **tokens))
    assert len(module.table.weight) == offset + prefix + 3 * 5
    hidden = draw(2, prefix + size[0] * size[1], 6)
    places = torch.arange(hidden.shape[1])[None]
    special, cells = module.table.weight[offset:].split((prefix, 15))
    resized = F.interpolate(cells.view(1, 3, 5, 6).permute(0, 3, 1, 2), size, mode="bicubic")
    expected = hidden + torch.cat((special, resized[0].flatten(1).T))
    assert_same(module.embed(Embedded(hidden, grid=size), places), expected, hidden, module.table.weight)


@pytest.mark.parametrize("registers", [1, 4, 20])
@pytest.mark.parametrize(("prefix", "offset"), [(0, 0), (1, 0), (2, 3)])
def test_learned_has_no_rows_for_registers(registers, prefix, offset):
    tokens = {"class_token": prefix > 0, "distillation_token": prefix > 1, "num_register_tokens": registers}
    module = encoding(vision(position_offset=offset, pooling="mean", **tokens))
    table, hidden = module.table.weight, draw(2, prefix + registers + 15, 6)
    assert len(table) == offset + prefix + 15
    added = torch.cat((table[offset : offset + prefix], torch.zeros(registers, 6), table[offset + prefix :]))
    embedded = Embedded(hidden, grid=(3, 5))
    assert_same(module.embed(embedded, torch.arange(hidden.shape[1])[None]), hidden + added, hidden, table)
    with raises_sentence(f"num_register_tokens={registers}", "images of"):
        module.embed(embedded._replace(grid=(5, 3)), PLACES)


@pytest.mark.parametrize("size", [(3, 5), (4, 9)])
def test_other_positions_ignore_the_grid(size):
    for word in set(get_args(PositionName)) - {"learned", "learned_and_t5"}:
        module, hidden = encoding(vision(position=word)), draw(2, 7, 6)
        assert torch.equal(module.embed(Embedded(hidden, grid=size), PLACES), module.embed(Embedded(hidden), PLACES))


@pytest.mark.parametrize("word", ["sinusoidal", "sinusoidal_concat", "sinusoidal_t2t"])
@pytest.mark.parametrize("dim", [2, 6, 10])
@pytest.mark.parametrize("first", [0, 2])
def test_sinusoidal(word, dim, first):
    table = getattr(reference, f"{word}_table")
    module, hidden = encoding(decoder(position=word, hidden_size=dim, position_offset=first)), draw(2, 7, dim)
    places = torch.cat((PLACES[:1], PLACES[1:] + 700))
    with exact():
        actual = module.embed(Embedded(hidden), places)
    expected = hidden + reference.learned_positions(places + first, table(713 + first, dim))
    assert_same(actual, expected, hidden)


def test_sinusoidal_of_a_late_position_keeps_its_digits():
    """Angles in single precision would be off by 0.004 at position 100,000."""
    module = POSITIONS["sinusoidal"](decoder(position="sinusoidal"))
    late = module.embed(Embedded(torch.zeros(1, 1, 6)), torch.tensor([[100_003]]))
    angles = [100_003 / 10000.0 ** (2 * (column // 2) / 6) for column in range(6)]
    expected = [math.cos(angle) if column % 2 else math.sin(angle) for column, angle in enumerate(angles)]
    assert (late[0, 0].double() - torch.tensor(expected, dtype=torch.float64)).abs().max() <= 6e-8
