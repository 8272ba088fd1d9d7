"""Shapes in colours: which pairs are held back, what they are called, and that they are drawn as said."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from qkv.scripts.example_data.shapes import (
    CAPTION_SIDE,
    COLOURS,
    SCENE_SIDE,
    SCENE_TESTS,
    SHAPES,
    box,
    caption,
    draw_shape,
    gallery,
    overlap,
    pairs,
    scene,
    scenes,
)
from qkv.scripts.recipes import loading as recipe


@pytest.mark.parametrize("shapes", [2, 4, 6])
def test_a_fourth_of_the_pairs_is_held_back_and_nothing_is_unheard_of(shapes: int) -> None:
    seen, unseen = pairs(shapes)
    assert len(unseen) == 2 * shapes and len(seen) == 6 * shapes and set(seen).isdisjoint(unseen)
    assert {colour for colour, _ in seen} == set(COLOURS)
    assert {shape for _, shape in seen} == set(list(SHAPES)[:shapes]) == {shape for _, shape in unseen}


@pytest.mark.parametrize("shapes", [1, 7])
def test_there_are_so_many_shapes(shapes: int) -> None:
    with pytest.raises(ValueError, match=f"text.symbols={shapes}: there are 2 to 6 shapes to draw"):
        pairs(shapes)


def test_captions_are_english() -> None:
    assert [caption(("orange", "star")), caption(("red", "circle"))] == ["an orange star", "a red circle"]


def test_what_is_drawn_has_its_colour_on_grey() -> None:
    for number, pair in enumerate((colour, shape) for colour in COLOURS for shape in SHAPES):
        levels = draw_shape(pair, np.random.default_rng(number)).astype(int)
        assert levels.shape == (CAPTION_SIDE, CAPTION_SIDE, 3)
        distance = np.abs(levels - np.array(COLOURS[pair[0]])).max(-1)
        assert 10 < (distance < 40).sum() < 400
        corner = levels[:2, :2].reshape(-1, 3).mean(0)  # of the ground, wherever the shape is
        assert np.ptp(corner) < 40


def test_the_same_pictures_come_every_time() -> None:
    seen, _ = pairs(4)
    levels, numbers = gallery(seen, 40, 3)
    again, same = gallery(seen, 40, 3)
    assert np.array_equal(levels, again) and numbers == same and len(set(numbers)) > 12
    assert not np.array_equal(levels, gallery(seen, 40, 4)[0])


MADE = recipe.load("shapes-detect", ["text.made=40", "holdout=0"])


def test_splits_of_scenes_hold_what_they_say() -> None:
    found = scenes(MADE).tables
    assert {name: len(table) for name, table in found.items()} == {"train": 40, "test": SCENE_TESTS}
    assert found["train"].features["objects"]["category"].feature.names == ["circle", "square", "triangle"]
    assert {len(row["bbox"]) for row in found["train"]["objects"]} == {1, 2}
    assert found["train"][:] == scenes(MADE).tables["train"][:] != found["test"][:40]


def test_scenes_have_so_many_shapes() -> None:
    with pytest.raises(ValueError, match="text.symbols=7: there are 6 shapes to draw"):
        scenes(recipe.load("shapes-detect", ["text.symbols=7"]))


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


def test_boxes_are_tight_and_nearly_apart() -> None:
    corners = np.array([[1.0, 2.0], [4.0, 3.0], [2.0, 8.0]])
    assert box(corners) == [1.0, 2.0, 3.0, 6.0]
    assert not overlap(corners, corners + (3.0, 0.0)) and not overlap(corners, corners + (2.8, 0.0))
    assert overlap(corners, corners + (2.5, 0.0)) and overlap(corners, corners * 0.1 + (2.0, 4.0))
