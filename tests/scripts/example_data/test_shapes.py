"""Shapes in colours: which pairs are held back, what they are called, and that they are drawn as said."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from qkv.scripts.example_data.shapes import COLOURS, SCENE_SIDE, SHAPES, pairs, scene


@pytest.mark.parametrize("shapes", [2, 4, 6])
def test_a_fourth_of_the_pairs_is_held_back_and_nothing_is_unheard_of(shapes: int) -> None:
    seen, unseen = pairs(shapes)
    assert len(unseen) == 2 * shapes and len(seen) == 6 * shapes and set(seen).isdisjoint(unseen)
    assert {colour for colour, _ in seen} == set(COLOURS)
    assert {shape for _, shape in seen} == set(list(SHAPES)[:shapes]) == {shape for _, shape in unseen}


@pytest.mark.parametrize("seed", range(20))
def test_what_is_not_ground_is_in_the_boxes(seed: int) -> None:
    found = scene(list(SHAPES), np.random.default_rng(seed))
    levels = np.asarray(Image.open(BytesIO(found["image"]["bytes"])), np.float64)
    assert levels.shape == (SCENE_SIDE, SCENE_SIDE, 3)
    outside, colours = np.ones((SCENE_SIDE, SCENE_SIDE), bool), []
    for left, top, width, height in found["objects"]["bbox"]:
        assert min(left, top) >= 0 and max(left + width, top + height) <= SCENE_SIDE and min(width, height) > 3
        outside[int(top) : int(np.ceil(top + height)), int(left) : int(np.ceil(left + width))] = False
        colours.append(levels[round(top + height / 2), round(left + width / 2)])
    assert np.ptp(levels[outside].mean(0)) < 5  # grey, but for noise
    ground = levels[outside].mean(0)
    assert all(np.abs(colour - ground).max() > 25 for colour in colours)
