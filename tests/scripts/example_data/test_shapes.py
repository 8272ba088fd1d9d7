"""Shapes in colours: which pairs are held back, what they are called, and that they are drawn as said."""

import numpy as np
import pytest

from qkv.scripts.example_data.shapes import COLOURS, SHAPES, SIDE, caption, drawn, gallery, pairs


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
        levels = drawn(pair, np.random.default_rng(number)).astype(int)
        assert levels.shape == (SIDE, SIDE, 3)
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
