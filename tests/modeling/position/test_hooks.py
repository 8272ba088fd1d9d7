"""Each word of a position stands in the group of the place where its class acts."""

from contextlib import nullcontext
from typing import get_args

import pytest
import torch

from comparison import TRAINED, decoder, draw, encoding
from qkv.configuration.axes import (
    BIAS_POSITIONS,
    DISENTANGLED_POSITIONS,
    ROTARY_POSITIONS,
    TABLE_POSITIONS,
    ImagePositionName,
    ObjectQueryPositionName,
    PositionName,
    SinusoidalPositionName,
)
from qkv.modeling.position import POSITIONS
from qkv.modeling.position.hooks import Embedded, Position, apply_rotation

HOOKS = {
    "embed": {*TABLE_POSITIONS, *get_args(SinusoidalPositionName), "sinusoidal_2d_and_input"},
    "rotation": {*ROTARY_POSITIONS},
    "query_key": {*get_args(ImagePositionName), *get_args(ObjectQueryPositionName)} - {"none"},
    "bias": {*BIAS_POSITIONS},
    "vectors": {*DISENTANGLED_POSITIONS},
}


@pytest.mark.parametrize("hook", HOOKS)
def test_words_stand_where_their_classes_act(hook):
    """What backends, caches and plans conclude from a word's group is true of its class, and of no other."""
    overriding = {word for word, owner in POSITIONS.items() if getattr(owner, hook) is not getattr(Position, hook)}
    assert overriding == HOOKS[hook]


@pytest.mark.parametrize("word", get_args(PositionName))
def test_words_of_a_table_end_with_it_and_no_others_do(word):
    """And none keeps a buffer: loading builds on the meta device, and one filled in `__init__` would be garbage."""
    module, last = encoding(decoder(position=word)), torch.tensor([[TRAINED - 1]])
    assert dict(module.named_buffers()) == {}
    module.embed(Embedded(draw(1, 1, 6)), last)
    with pytest.raises(IndexError) if word in TABLE_POSITIONS else nullcontext():
        module.embed(Embedded(draw(1, 1, 6)), 1000 * last)


def test_without_a_rotation_heads_pass():
    heads = draw(2, 3, 7, 4)
    assert all(passed is heads for passed in apply_rotation(heads, heads, None))
