"""Sums over stacks: entropy, distance, and groups of positions."""

import numpy as np
import pytest
from scipy.stats import entropy

from qkv.scripts.attention_view.positions import numbered, patches
from qkv.scripts.attention_view.stacks import Stack, mean_distance, mean_entropy, select


def weights(queries: int, keys: int, layers: int = 2, heads: int = 3) -> np.ndarray:
    raw = np.random.default_rng(0).random((layers, heads, queries, keys), dtype=np.float32) ** 4
    return raw / raw.sum(-1, keepdims=True)


def test_entropy_is_the_mean_over_queries_that_attend() -> None:
    given = weights(5, 7)
    expected = entropy(given, base=2, axis=-1).mean(-1)
    np.testing.assert_allclose(mean_entropy(given), expected, rtol=1e-4)
    padded = np.concatenate((given, np.zeros_like(given)), axis=2)
    np.testing.assert_allclose(mean_entropy(padded), expected, rtol=1e-4)
    assert mean_entropy(np.eye(4, dtype=np.float32)[None, None]) == 0


def test_distance_counts_tokens() -> None:
    text = numbered(4)
    shift = np.roll(np.eye(4, dtype=np.float32), 1, axis=1)[
        None, None
    ]  # each attends to the next, the last to the first
    assert mean_distance(shift, text) == pytest.approx((1 + 1 + 1 + 3) / 4)
    assert mean_distance(shift[:, :, :2], text) == pytest.approx(1)


def test_distance_of_patches_is_that_in_the_grid() -> None:
    image = patches(1 + 6, 20, 30, 10, b"")
    given = np.zeros((1, 1, 7, 7), dtype=np.float32)
    given[..., 1:, 6] = 1  # all attend to the last patch, in row 1 and column 2
    expected = np.mean([np.hypot(1 - row, 2 - column) for row in range(2) for column in range(3)])
    assert mean_distance(given, image) == pytest.approx(expected)


@pytest.mark.parametrize("rest", [True, False])
def test_selected_positions_leave_a_rest_or_none(rest: bool) -> None:
    text, other = numbered(5), numbered(3)
    given = weights(5, 5)
    own, cross = (
        Stack("encoder", [0, 1], [0, 1, 2], text, text, given, given[..., 0, 0], None),
        Stack("cross", [0, 1], [0, 1, 2], other, text, weights(3, 5), given[..., 0, 0], None),
    )
    made = select([own, cross], text, [3, 0], rest=rest)
    assert made[0].queries is made[0].keys is made[1].keys and made[1].queries is other
    assert made[0].keys.labels == ["3", "0"] and made[0].keys.rest == 3 * rest
    np.testing.assert_allclose(made[0].weights[..., :2], given[:, :, [3, 0]][..., [3, 0]], rtol=1e-6)
    np.testing.assert_allclose(made[1].weights[..., :2], cross.weights[..., [3, 0]], rtol=1e-6)
    if rest:
        np.testing.assert_allclose(made[0].weights.sum(-1), 1, rtol=1e-5)
