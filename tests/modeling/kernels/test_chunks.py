"""Sums by chunks are those of a loop over tokens, whatever the length, the documents and the state before."""

import pytest
import torch

from comparison import assert_same, draw
from qkv.modeling.kernels import chunks
from qkv.modeling.kernels.chunks import Chunks, causal_products, causal_sums, segment_tokens


def loop(query, key, value, documents, state):
    """The sums token by token: a state that a new document empties."""
    sums = []
    for token in range(query.shape[-2]):
        if documents is not None and token:
            same = (documents[:, token] == documents[:, token - 1]).view(-1, 1, 1, 1, 1)
            state = torch.where(same, state, 0)
        state = state + key[..., token, :, None] * value[..., token, None, :]
        sums.append((query[..., token, :, None] * state).sum(-2))
    return torch.stack(sums, -2), state


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 9, 13])
@pytest.mark.parametrize("size", [1, 4, 64])
@pytest.mark.parametrize("kind", ["alone", "after others", "documents", "documents of all rows"])
def test_causal_sums(monkeypatch, length, size, kind):
    """Of values, and of ones by the shorter way."""
    monkeypatch.setattr(chunks, "CHUNK_TOKENS", size)
    rows = 1 if kind == "documents of all rows" else 2
    documents = (torch.rand(rows, length) < 0.4).cumsum(-1) * 7 - 3 if "documents" in kind else None
    query, key, value = draw(2, 2, 3, length, 4), draw(2, 2, 1, length, 4), draw(2, 2, 1, length, 5)
    state = draw(2, 2, 1, 4, 5) if kind == "after others" else None
    leaves = [query, key, value, *([] if state is None else [state])]
    split = Chunks.of(query, key, documents)
    actual, end = causal_sums(split, split.scores(), value, state)
    expected, last = loop(query, key, value, documents, torch.zeros(2, 2, 1, 4, 5).double() if state is None else state)
    assert_same(actual, expected, *leaves)
    assert_same(end, last, *leaves[1:])
    before = None if state is None else state[..., :1]
    longer = causal_sums(split, split.scores(), torch.ones_like(value[..., :1]), before)
    for one, other in zip(causal_products(split, split.scores(), before), longer, strict=True):
        assert_same(one, other, key)


@pytest.mark.parametrize(("rows", "tokens"), [(1, 512), (2, 256), (7, 64), (1000, 64)])
def test_segments_are_whole_chunks_of_a_size_on_a_cpu_and_everything_elsewhere(rows, tokens):
    query = torch.empty(rows, 8, 1, 640, 64, device="meta")
    assert segment_tokens(query) == 640
    assert segment_tokens(torch.empty(()).expand(query.shape)) == tokens
