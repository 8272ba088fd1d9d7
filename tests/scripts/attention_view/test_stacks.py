"""Sums over stacks, names of positions and pictures; what is too large for a page is reduced: sums stay, and it is said."""

import io
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoTokenizer

import stock_folders
from qkv.scripts.attention.statistics import grid_of
from qkv.scripts.attention_view.positions import (
    LONGEST,
    Positions,
    image_picture,
    png,
    shortened,
    spectrogram_picture,
    token_labels,
)
from qkv.scripts.attention_view.reading import NAMES, Reading
from qkv.scripts.attention_view.stacks import Stack, fit, halved, mean_distance, regroup, select


def numbered(count: int) -> Positions:
    return Positions("tokens", [str(number) for number in range(count)])


def grid(rows: int, columns: int) -> Positions:
    return Positions("patches", ["class", *map(str, range(rows * columns))], (rows, columns), 1, b"")


def stack(queries: Positions, keys: Positions, heads: int = 4, layers: int = 3) -> Stack:
    raw = np.random.default_rng(0).random((layers, heads, len(queries), len(keys)), dtype=np.float32) ** 4
    none, numbers = np.zeros((layers, heads), dtype=np.float32), (list(range(layers)), list(range(heads)))
    return Stack("encoder", *numbers, queries, keys, raw / raw.sum(-1, keepdims=True), none, none)


def test_distance_counts_tokens_or_steps_in_the_grid() -> None:
    shift = torch.eye(4).roll(1, 1)[None, None]  # each attends to the next, the last to the first
    assert mean_distance(shift, numbered(4)) == pytest.approx((1 + 1 + 1 + 3) / 4)
    assert mean_distance(shift[:, :, :2], numbered(4)) == pytest.approx(1)
    given = torch.zeros(1, 1, 7, 7)
    given[..., 1:, 6] = 1  # all attend to the last patch, in row 1 and column 2
    expected = np.mean([np.hypot(1 - row, 2 - column) for row in range(2) for column in range(3)])
    assert mean_distance(given, grid(2, 3)) == pytest.approx(expected)
    assert mean_distance(torch.zeros(1, 1, 4, 4), numbered(4)) == 0


@pytest.mark.parametrize("rest", [True, False])
def test_selected_positions_leave_a_rest_or_none(rest: bool) -> None:
    text, other = numbered(5), numbered(3)
    own, cross = stack(text, text), stack(other, text)
    made = select([own, cross], text, [3, 0], rest=rest)
    assert made[0].queries is made[0].keys is made[1].keys and made[1].queries is other
    assert made[0].keys.labels == ["3", "0"] and made[0].keys.rest == 3 * rest
    np.testing.assert_allclose(made[0].weights[..., :2], own.weights[:, :, [3, 0]][..., [3, 0]], rtol=1e-6)
    np.testing.assert_allclose(made[1].weights[..., :2], cross.weights[..., [3, 0]], rtol=1e-6)
    assert not rest or np.allclose(made[0].weights.sum(-1), 1)


def test_first_the_heads_are_averaged_and_then_tokens_cut() -> None:
    text = numbered(41)
    own = stack(text, text)
    assert fit([own]) == ([own], [])
    (made,), notes = fit([own], most=own.weights.size - 1)
    assert made.heads == [] and len(notes) == 1
    np.testing.assert_allclose(made.weights[:, 0], own.weights.mean(1), rtol=1e-5)
    (made,), notes = fit([own], most=own.weights.size // 8)
    assert made.queries is made.keys and made.keys.labels == text.labels[:21] and made.keys.rest == 20
    assert made.weights.shape == (3, 1, 21, 22) and len(notes) == 2
    np.testing.assert_allclose(made.weights.sum(-1), 1, rtol=1e-5)
    (made,), notes = fit([own], most=own.weights.size // 60)
    assert made.keys.rest + len(made.keys) == 41 and len(notes) == 2  # a second cut
    np.testing.assert_allclose(made.weights.sum(-1), 1, rtol=1e-5)


def test_frames_are_summed_in_pairs_and_patches_in_squares() -> None:
    sound, image = Positions("frames", list("abcde")), grid(3, 4)
    own = stack(numbered(3), sound, heads=1)
    new, groups = halved(sound)
    made = regroup(own, sound, new, groups)
    assert new.labels == ["a", "c", "e"] and made.queries is own.queries
    expected = own.weights[..., [0, 2]] + own.weights[..., [1, 3]]
    np.testing.assert_allclose(made.weights, np.concatenate((expected, own.weights[..., 4:]), -1), rtol=1e-6)
    own = stack(image, image, heads=1)
    new, groups = halved(image)
    made = regroup(own, image, new, groups)
    assert new.grid == (2, 2) and new.labels == ["class", "(1, 1)", "(1, 2)", "(2, 1)", "(2, 2)"]
    first = [1, 2, 5, 6]  # the patches of the first square, in rows of four behind the class token
    np.testing.assert_allclose(made.weights[..., 0, 1], own.weights[..., 0, first].sum(-1), rtol=1e-5)
    np.testing.assert_allclose(made.weights[..., 1, 0], own.weights[:, :, first, 0].mean(-1), rtol=1e-5)


@pytest.mark.parametrize("positions", [numbered(1500), Positions("frames", ["a"] * 1500)])
def test_no_sequence_is_longer_than_can_be_read(positions: Positions) -> None:
    (made,), notes = fit([stack(numbered(2), positions, heads=1, layers=1)])
    assert len(made.keys) == 375 and len(notes) == 1


# Positions and pictures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "height", "width", "patch", "expected"),
    [
        (197, 224, 224, 16, ((14, 14), 1)),
        (196, 224, 224, [16, 16], ((14, 14), 0)),
        (7, 4, 6, 2, ((2, 3), 1)),
        (850, 800, 1066, None, ((25, 34), 0)),
        (17, 16, 16, None, ((4, 4), 1)),
        (211, 224, 224, 16, None),
    ],
)
def test_the_grid_follows_from_the_patches_or_the_shape(
    count: int, height: int, width: int, patch: Any, expected: Any
) -> None:
    assert grid_of(SimpleNamespace(patch_size=patch), count, torch.empty(3, height, width)) == expected


def test_patches_frames_and_tokens_are_named(tmp_path: Any) -> None:
    model: Any = SimpleNamespace(config=SimpleNamespace(patch_size=2))
    own = NAMES["image"](Reading(model, {"pixel_values": torch.rand(1, 3, 4, 6)}), 8)
    assert own and own.labels == ["class", "extra 1", "(1, 1)", "(1, 2)", "(1, 3)", "(2, 1)", "(2, 2)", "(2, 3)"]
    assert (own.grid, own.prefix) == ((2, 3), 2)
    for seconds, labels in ((1.0, ["0.00 s", "0.50 s"]), (None, ["frame 0", "frame 1"])):
        own = NAMES["sound"](Reading(model, {"input_features": torch.rand(1, 8, 30)}, seconds=seconds), 2)
        assert own and own.labels == labels
    tokenizer = AutoTokenizer.from_pretrained(stock_folders.gpt2(tmp_path / "gpt2"))
    ids = tokenizer("a é")["input_ids"]
    assert token_labels(ids, tokenizer) == ["a", " ", "Ã", "©"]  # parts of a character by their names
    assert token_labels(ids[:1], None) == [str(ids[0])]
    assert shortened("a" * (LONGEST + 1)) == "a" * (LONGEST - 1) + "…" and shortened("a" * LONGEST) == "a" * LONGEST


def pixels(content: bytes) -> Any:
    return np.asarray(Image.open(io.BytesIO(content)))


def test_pictures_are_the_input_of_the_model() -> None:
    image, mean, deviation = torch.rand(3, 300, 240), [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]
    processor = SimpleNamespace(do_normalize=True, image_mean=mean, image_std=deviation)
    normalised = (image - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(deviation).view(3, 1, 1)
    assert np.abs(pixels(image_picture(normalised, processor)) / 255 - image.permute(1, 2, 0).numpy()).max() < 0.003
    shown = pixels(image_picture(torch.linspace(-2, 6, 300 * 300).view(1, 300, 300)))
    assert (shown.min(), shown.max()) == (0, 255) and shown.ndim == 2
    small = np.arange(64, dtype=np.uint8).reshape(8, 8)
    assert (pixels(png(small)) == small).all()
    assert max(pixels(png(np.zeros((500, 1000), dtype=np.uint8))).shape) == 448


def test_a_tone_is_dark_at_its_frequency() -> None:
    tone = torch.sin(2 * np.pi * 2000 * torch.arange(16000) / 16000)
    shown = pixels(spectrogram_picture(tone))
    row = int(shown.mean(1).argmin())
    assert abs((1 - row / len(shown)) * 8000 - 2000) < 100  # low frequencies are at the bottom
    assert pixels(spectrogram_picture(tone[:100])).size
