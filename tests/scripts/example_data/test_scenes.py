"""Shapes in boxes: pictures hold one or two, where their boxes say, and come out the same every time."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from qkv.scripts.example_data.scenes import SIDE, TESTED, box, scene, scenes, shared
from qkv.scripts.example_data.shapes import SHAPES
from qkv.scripts.recipes import schema as recipe

MADE = recipe.load("shapes-detect", ["text.made=40"])


def test_splits_hold_what_they_say() -> None:
    found = scenes(MADE)
    assert {name: len(table) for name, table in found.items()} == {"train": 40, "test": TESTED}
    assert found["train"].features["objects"]["category"].feature.names == ["circle", "square", "triangle"]
    assert {len(row["bbox"]) for row in found["train"]["objects"]} == {1, 2}
    assert found["train"][:] == scenes(MADE)["train"][:] != found["test"][:40]


def test_there_are_so_many_shapes() -> None:
    with pytest.raises(ValueError, match="text.symbols=7: there are 6 shapes to draw"):
        scenes(recipe.load("shapes-detect", ["text.symbols=7"]))


@pytest.mark.parametrize("seed", range(20))
def test_what_is_not_ground_is_in_the_boxes(seed: int) -> None:
    found = scene(list(SHAPES), np.random.default_rng(seed))
    levels = np.asarray(Image.open(BytesIO(found["image"]["bytes"])), np.float64)
    assert levels.shape == (SIDE, SIDE, 3)
    outside, colours = np.ones((SIDE, SIDE), bool), []
    for left, top, width, height in found["objects"]["bbox"]:
        assert min(left, top) >= 0 and max(left + width, top + height) <= SIDE and min(width, height) > 3
        outside[int(top) : int(np.ceil(top + height)), int(left) : int(np.ceil(left + width))] = False
        colours.append(levels[round(top + height / 2), round(left + width / 2)])
    assert np.ptp(levels[outside].mean(0)) < 5  # grey, but for noise
    ground = levels[outside].mean(0)
    assert all(np.abs(colour - ground).max() > 25 for colour in colours)


def test_boxes_are_tight_and_nearly_apart() -> None:
    corners = np.array([[1.0, 2.0], [4.0, 3.0], [2.0, 8.0]])
    assert box(corners) == [1.0, 2.0, 3.0, 6.0]
    assert not shared(corners, corners + (3.0, 0.0)) and not shared(corners, corners + (2.8, 0.0))
    assert shared(corners, corners + (2.5, 0.0)) and shared(corners, corners * 0.1 + (2.0, 4.0))
