"""Sums by chunks are those of a loop over tokens, whatever the length, the documents and the state before."""

import pytest
import torch

from comparison import assert_same, draw
from qkv.modeling.kernels import chunks
from qkv.modeling.kernels.chunks import Chunks, causal_products, causal_sums, segment_tokens

LENGTHS = pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 9, 13])


def loop(query, key, value, documents=None, state=None):
    """The sums token by token: a state that a new document empties."""
    state = query.new_zeros(*query.shape[:-2], query.shape[-1], value.shape[-1]) if state is None else state
    sums = []
    for token in range(query.shape[-2]):
        if documents is not None and token:
            same = (documents[:, token] == documents[:, token - 1]).view(-1, 1, 1, 1, 1)
            state = torch.where(same, state, 0)
        state = state + key[..., token, :, None] * value[..., token, None, :]
        sums.append((query[..., token, :, None] * state).sum(-2))
    return torch.stack(sums, -2), state


def by_chunks(query, key, value, documents=None, state=None):
    """The sums of values, and those of ones by the shorter way."""
    split = Chunks.of(query, key, documents)
    scores, before = split.scores(), None if state is None else state[..., :1]
    products = causal_products(split, scores, before)
    longer = causal_sums(split, scores, torch.ones_like(value[..., :1]), before)
    for actual, expected in zip(products, longer, strict=True):
        assert_same(actual, expected, key)
    return causal_sums(split, scores, value, state)


def tensors(length):
    return draw(2, 2, 3, length, 4), draw(2, 2, 1, length, 4), draw(2, 2, 1, length, 5)


@LENGTHS
@pytest.mark.parametrize("size", [1, 4, 64])
@pytest.mark.parametrize("past", [False, True])
def test_causal_sums(monkeypatch, length, size, past):
    monkeypatch.setattr(chunks, "CHUNK_TOKENS", size)
    given = tensors(length)
    state = draw(2, 2, 1, 4, 5) if past else None
    leaves = [*given, *([state] if past else [])]
    actual, end = by_chunks(*given, state=state)
    expected, _ = loop(*given, state=None if state is None else state.expand(2, 2, 3, 4, 5))
    assert_same(actual, expected, *leaves)
    assert_same(end, loop(*given, state=state)[1][:, :, :1], *leaves[1:])


@LENGTHS
@pytest.mark.parametrize("size", [1, 4, 64])
@pytest.mark.parametrize("share", [0.2, 0.6])
def test_documents_start_from_nothing(monkeypatch, length, size, share):
    monkeypatch.setattr(chunks, "CHUNK_TOKENS", size)
    documents, given = (torch.rand(2, length) < share).cumsum(-1), tensors(length)
    actual, end = by_chunks(*given, documents)
    expected, last = loop(*given, documents)
    assert_same(actual, expected, *given)
    assert_same(end, last[:, :, :1], *given[1:])
    assert_same(by_chunks(*given, documents[:1])[0], loop(*given, documents[:1].expand(2, -1))[0])


def test_numbers_of_documents_mean_nothing():
    given, documents = tensors(9), torch.tensor([[0, 0, 1, 1, 1, 2, 3, 3, 3]])
    assert torch.equal(by_chunks(*given, documents)[0], by_chunks(*given, 7 * documents - 3)[0])


@pytest.mark.parametrize(("rows", "tokens"), [(1, 512), (2, 256), (7, 64), (1000, 64)])
def test_segments_are_whole_chunks_of_a_size_on_a_cpu_and_everything_elsewhere(rows, tokens):
    query = torch.empty(rows, 8, 1, 640, 64, device="meta")
    assert segment_tokens(query) == 640
    assert segment_tokens(torch.empty(()).expand(query.shape)) == tokens
