"""Rollout, flow and relevance are what slow loops from the papers give."""

import pytest
import torch
from torch import Tensor

import reference
from qkv.scripts.attention import rollout


def layers(count: int, tokens: int, keys: int | None = None, *, causal: bool = False) -> list[Tensor]:
    """Attention of two rows and three heads."""
    generator = torch.Generator().manual_seed(count)
    scores = torch.randn(count, 2, 3, tokens, keys or tokens, dtype=torch.float64, generator=generator) * 2
    if causal:
        scores = scores.masked_fill(torch.ones(tokens, tokens).triu(1).bool(), -torch.inf)
    return list(scores.softmax(-1))


@pytest.mark.parametrize("causal", [False, True])
def test_rollout_is_the_sum_over_all_paths(causal: bool) -> None:
    weights = layers(3, 4, causal=causal)
    rolled = rollout.attention_rollout(weights)
    for row in range(2):
        expected = reference.attention_rollout([layer[row] for layer in weights])
        torch.testing.assert_close(rolled[row], expected, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(rolled, rollout.attention_rollout(weights[::-1]), atol=1e-3)


@pytest.mark.parametrize("causal", [False, True])
def test_flow_is_the_smallest_cut(causal: bool) -> None:
    weights = layers(3, 3, causal=causal)
    flow = rollout.attention_flow(weights, [0, 2])
    for row in range(2):
        for place, query in enumerate((0, 2)):
            expected = reference.attention_flow([layer[row] for layer in weights], query)
            torch.testing.assert_close(flow[row, place], expected, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(flow, rollout.attention_rollout(weights)[:, [0, 2]], atol=1e-3)


def test_relevance_of_self_attention_and_of_memory() -> None:
    generator = torch.Generator().manual_seed(0)
    own, crossed, encoder = (
        [weights * torch.randn(weights.shape, dtype=torch.float64, generator=generator) for weights in group]
        for group in (layers(2, 4), layers(2, 4, 5), layers(3, 5))
    )
    memory = rollout.self_relevance(encoder)
    relevance, of_memory = rollout.cross_relevance(own, crossed, memory)
    for row in range(2):
        rows = [[layer[row] for layer in group] for group in (own, crossed, encoder)]
        expected = reference.self_relevance(rows[2])
        torch.testing.assert_close(memory[row], expected, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(relevance[row], reference.self_relevance(rows[0]), rtol=1e-12, atol=1e-12)
        cross = reference.cross_relevance(rows[0], rows[1], expected)
        torch.testing.assert_close(of_memory[row], cross, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(rollout.cross_relevance(own, crossed[::-1], memory)[1], of_memory, atol=1e-3)


def test_padding_reaches_nothing() -> None:
    """A row of zeros, as padding has, keeps to itself."""
    weights = [torch.zeros(1, 2, 3, 3), torch.zeros(1, 2, 3, 3)]
    assert torch.equal(rollout.attention_rollout(weights)[0], torch.eye(3))
    assert torch.equal(rollout.self_relevance(weights)[0], torch.eye(3))
