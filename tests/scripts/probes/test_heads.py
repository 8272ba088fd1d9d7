"""Statistics of heads are those of slow loops from the papers."""

import pytest
import torch

import reference
from qkv.scripts.probes import heads

GENERATOR = torch.Generator().manual_seed(0)
CLOSE = 1e-5


def attention(*shape: int) -> torch.Tensor:
    """Attention weights, some of them zero."""
    scores = 3 * torch.randn(*shape, generator=GENERATOR)
    return scores.masked_fill(torch.rand(*shape, generator=GENERATOR) < 0.2, -1e4).softmax(-1)


def test_entropy() -> None:
    weights = attention(2, 3, 5, 7)
    entropy = heads.attention_entropy(weights)
    for row in range(2):
        for head in range(3):
            expected = reference.attention_entropy(weights[row, head].double())
            torch.testing.assert_close(entropy[row, head].double(), expected, rtol=CLOSE, atol=CLOSE)
    assert heads.attention_entropy(torch.full((1, 1, 1, 8), 1 / 8)).item() == pytest.approx(2.0794415, rel=1e-6)
    assert heads.attention_entropy(torch.eye(4)[None, None]).abs().max() == 0


@pytest.mark.parametrize("places", [torch.arange(6)[:, None], heads.patch_places(2, 3)])
def test_distance(places: torch.Tensor) -> None:
    weights = 0.5 * attention(2, 3, 6, 6)  # the rest goes to a class token
    distance = heads.attention_distance(weights, places)
    for row in range(2):
        for head in range(3):
            expected = reference.attention_distance(weights[row, head].double(), places.tolist())
            torch.testing.assert_close(distance[row, head].double(), expected, rtol=CLOSE, atol=CLOSE)


def test_distance_of_a_head_that_attends_to_the_next_token() -> None:
    weights = torch.eye(5).roll(1, 1)[None, None].clone()
    weights[..., 4, :] = 0  # and one that attends to nothing
    distance = heads.attention_distance(weights, torch.arange(5)[:, None])[0, 0]
    assert distance[:4].tolist() == [1, 1, 1, 1] and distance[4].isnan()


def test_patches_of_one_row_follow_each_other() -> None:
    assert heads.patch_places(2, 3).tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]


def test_attention_to_the_first_token_of_each_row() -> None:
    weights = attention(2, 3, 5, 5)
    sinks = heads.first_token_attention(weights, torch.tensor([0, 2]))
    assert torch.equal(sinks[0], weights[0, :, :, 0]) and torch.equal(sinks[1], weights[1, :, :, 2])


def test_padding_and_queries_without_a_value_do_not_count() -> None:
    values = torch.tensor([[[1.0, 2.0, 9.0]], [[4.0, float("nan"), 9.0]]])
    real = torch.tensor([[True, True, False], [True, True, False]])
    assert heads.mean_of_heads(values, real).item() == pytest.approx(7 / 3)
    assert heads.mean_of_heads(values, torch.zeros_like(real)).isnan().all()
