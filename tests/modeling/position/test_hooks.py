"""Each word of a position stands in the group of the place where its class acts."""

from typing import get_args

import pytest
import torch

from comparison import TRAINED, decoder, draw, encoding
from qkv.configuration.axes import (
    BIAS_POSITIONS,
    ROTARY_POSITIONS,
    TABLE_POSITIONS,
    ImagePositionName,
    ObjectQueryPositionName,
    PositionName,
    SinusoidalPositionName,
)
from qkv.modeling.position import POSITIONS
from qkv.modeling.position.hooks import Embedded, Position, apply_rotation

# Those of every family; the others are a detector's.
WORDS = get_args(PositionName)


@pytest.mark.parametrize("word", WORDS)
def test_positions_keep_no_buffer(word):
    """Loading builds on the meta device: a buffer filled in `__init__` would be garbage afterwards."""
    assert dict(POSITIONS[word](decoder(position=word)).named_buffers()) == {}


HOOKS = {
    "embed": {*TABLE_POSITIONS, *get_args(SinusoidalPositionName), "sinusoidal_2d_and_input"},
    "rotation": {*ROTARY_POSITIONS},
    "query_key": {*get_args(ImagePositionName), *get_args(ObjectQueryPositionName)} - {"none"},
    "bias": {*BIAS_POSITIONS},
}


@pytest.mark.parametrize("hook", HOOKS)
def test_words_stand_where_their_classes_act(hook):
    """What backends, caches and plans conclude from a word's group is true of its class, and of no other."""
    overriding = {word for word, owner in POSITIONS.items() if getattr(owner, hook) is not getattr(Position, hook)}
    assert overriding == HOOKS[hook]


@pytest.mark.parametrize("word", WORDS)
def test_words_of_a_table_end_with_it_and_no_others_do(word):
    module = encoding(decoder(position=word))
    last = torch.tensor([[TRAINED - 1]])
    module.embed(Embedded(draw(1, 1, 6)), last)
    try:
        module.embed(Embedded(draw(1, 1, 6)), 1000 * last)
    except IndexError:
        assert word in TABLE_POSITIONS
    else:
        assert word not in TABLE_POSITIONS


def test_without_a_rotation_heads_pass():
    heads = draw(2, 3, 7, 4)
    assert all(passed is heads for passed in apply_rotation(heads, heads, None))
