"""Sums over stacks, and the reduction of what is too large for a page: sums stay, and it is said."""

import numpy as np
import pytest
import torch
from scipy.stats import entropy

from qkv.scripts.attention_view.positions import Positions, frames
from qkv.scripts.attention_view.stacks import Stack, fit, halved, mean_distance, mean_entropy, regroup, select


def numbered(count: int) -> Positions:
    return Positions("tokens", [str(number) for number in range(count)])


def grid(rows: int, columns: int) -> Positions:
    return Positions("patches", ["class", *map(str, range(rows * columns))], (rows, columns), 1, b"")


def stack(queries: Positions, keys: Positions, heads: int = 4, layers: int = 3) -> Stack:
    raw = np.random.default_rng(0).random((layers, heads, len(queries), len(keys)), dtype=np.float32) ** 4
    none, numbers = np.zeros((layers, heads), dtype=np.float32), (list(range(layers)), list(range(heads)))
    return Stack("encoder", *numbers, queries, keys, raw / raw.sum(-1, keepdims=True), none, none)


def test_entropy_is_the_mean_over_queries_that_attend() -> None:
    given = stack(numbered(5), numbered(7)).weights
    padded = np.concatenate((given, np.zeros_like(given)), axis=2)
    for weights in (given, padded):
        np.testing.assert_allclose(
            mean_entropy(torch.tensor(weights)), entropy(given, base=2, axis=-1).mean(-1), rtol=1e-4
        )


def test_distance_counts_tokens_or_steps_in_the_grid() -> None:
    shift = torch.eye(4).roll(1, 1)[None, None]  # each attends to the next, the last to the first
    assert mean_distance(shift, numbered(4)) == pytest.approx((1 + 1 + 1 + 3) / 4)
    assert mean_distance(shift[:, :, :2], numbered(4)) == pytest.approx(1)
    given = torch.zeros(1, 1, 7, 7)
    given[..., 1:, 6] = 1  # all attend to the last patch, in row 1 and column 2
    expected = np.mean([np.hypot(1 - row, 2 - column) for row in range(2) for column in range(3)])
    assert mean_distance(given, grid(2, 3)) == pytest.approx(expected)


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
    sound, image = frames(5, 1.0, b""), grid(3, 4)
    own = stack(numbered(3), sound, heads=1)
    new, groups = halved(sound)
    made = regroup(own, sound, new, groups)
    assert new.labels == ["0.00 s", "0.40 s", "0.80 s"] and made.queries is own.queries
    expected = own.weights[..., [0, 2]] + own.weights[..., [1, 3]]
    np.testing.assert_allclose(made.weights, np.concatenate((expected, own.weights[..., 4:]), -1), rtol=1e-6)
    own = stack(image, image, heads=1)
    new, groups = halved(image)
    made = regroup(own, image, new, groups)
    assert new.grid == (2, 2) and new.labels == ["class", "(1, 1)", "(1, 2)", "(2, 1)", "(2, 2)"]
    first = [1, 2, 5, 6]  # the patches of the first square, in rows of four behind the class token
    np.testing.assert_allclose(made.weights[..., 0, 1], own.weights[..., 0, first].sum(-1), rtol=1e-5)
    np.testing.assert_allclose(made.weights[..., 1, 0], own.weights[:, :, first, 0].mean(-1), rtol=1e-5)


@pytest.mark.parametrize("positions", [numbered(1500), frames(1500, 30.0, b"")])
def test_no_sequence_is_longer_than_can_be_read(positions: Positions) -> None:
    (made,), notes = fit([stack(numbered(2), positions, heads=1, layers=1)])
    assert len(made.keys) == 375 and len(notes) == 1
