"""What is too large for a page is averaged or cut, sums stay, and it is said."""

import numpy as np
import pytest

from qkv.scripts.attention_view import reduction
from qkv.scripts.attention_view.positions import Positions, frames, numbered, patches
from qkv.scripts.attention_view.reduction import fit, halved, packed, quantise, size_of
from qkv.scripts.attention_view.stacks import Stack


def stack(queries: Positions, keys: Positions, heads: int = 4, layers: int = 3) -> Stack:
    raw = np.random.default_rng(0).random((layers, heads, len(queries), len(keys)), dtype=np.float32)
    none = np.zeros((layers, heads), dtype=np.float32)
    return Stack(
        "encoder", list(range(layers)), list(range(heads)), queries, keys, raw / raw.sum(-1, keepdims=True), none, none
    )


def test_weights_are_exact_to_a_step_and_negative_ones_too() -> None:
    weights = np.random.default_rng(1).normal(size=(2, 3, 4, 50)).astype(np.float32)
    weights[0, 0] = 0
    shares, least, greatest = quantise(weights)
    shown = least[..., None] + shares / 255 * (greatest - least)[..., None]
    assert (np.abs(shown - weights) <= ((greatest - least) / 510)[..., None] + 1e-6).all()
    assert (quantise(np.abs(weights))[1] == 0).all()


def test_what_fits_is_left_alone() -> None:
    own = stack(numbered(20), numbered(20))
    made, notes = fit([own])
    assert made == [own] and notes == []


def test_first_the_heads_are_averaged_and_then_tokens_cut() -> None:
    text = numbered(40)
    own = stack(text, text)
    made, notes = fit([own], most=size_of(own) - 1)
    assert made[0].is_mean and len(notes) == 1 and notes[0].startswith("encoder: the 4 heads")
    np.testing.assert_allclose(made[0].weights[:, 0], own.weights.mean(1), rtol=1e-5)
    made, notes = fit([own], most=size_of(own.mean_over_heads()) - 1)
    assert made[0].queries is made[0].keys and made[0].keys.labels == text.labels[:20] and made[0].keys.rest == 20
    assert made[0].weights.shape == (3, 1, 20, 21) and "the other 20" in notes[1]
    np.testing.assert_allclose(made[0].weights.sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(made[0].weights[..., :20], own.weights.mean(1, keepdims=True)[:, :, :20, :20], rtol=1e-5)


def test_a_second_cut_keeps_the_sum() -> None:
    text = numbered(41)
    own = stack(text, text, heads=1)
    made, notes = fit([own], most=size_of(own) // 10)
    assert made[0].keys.rest + len(made[0].keys) == 41 and len(notes) == 1
    np.testing.assert_allclose(made[0].weights.sum(-1), 1, rtol=1e-5)


def test_frames_are_summed_in_pairs() -> None:
    sound = frames(5, 1.0, b"")
    own = stack(numbered(3), sound, heads=1)
    new, groups = halved(sound)
    made = reduction.regroup(own, sound, new, groups)
    assert new.labels == ["0.00 s", "0.40 s", "0.80 s"] and made.queries is own.queries
    expected = own.weights[..., [0, 2]] + own.weights[..., [1, 3]]
    np.testing.assert_allclose(made.weights, np.concatenate((expected, own.weights[..., 4:]), -1), rtol=1e-6)


def test_patches_become_squares_and_the_class_token_stays() -> None:
    image = patches(1 + 3 * 4, 30, 40, 10, b"png")
    own = stack(image, image, heads=1)
    new, groups = halved(image)
    made = reduction.regroup(own, image, new, groups)
    assert new.grid == (2, 2) and new.labels == ["class", "(1, 1)", "(1, 2)", "(2, 1)", "(2, 2)"]
    np.testing.assert_allclose(made.weights.sum(-1), 1, rtol=1e-5)
    first = [1, 2, 5, 6]  # the patches of the first square, in rows of four behind the class token
    np.testing.assert_allclose(made.weights[..., 0, 1], own.weights[..., 0, first].sum(-1), rtol=1e-5)
    np.testing.assert_allclose(made.weights[..., 1, 0], own.weights[:, :, first, 0].mean(-1), rtol=1e-5)


@pytest.mark.parametrize("positions", [numbered(1500), frames(1500, 30.0, b"")])
def test_no_sequence_is_longer_than_can_be_read(positions: Positions) -> None:
    own = stack(numbered(2), positions, heads=1, layers=1)
    made, notes = fit([own])
    assert len(made[0].keys) == 375 and len(notes) == 1


def test_numbers_are_packed_for_a_browser() -> None:
    import base64
    import zlib

    assert zlib.decompress(base64.b64decode(packed(np.array([1.5], dtype=">f4")))) == np.array([1.5], "<f4").tobytes()
