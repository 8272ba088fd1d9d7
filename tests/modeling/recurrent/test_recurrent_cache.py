"""A state that generation can reorder, copy and take back; what cannot be taken back is refused."""

import pytest
import torch

from errors import raises_sentence
from qkv.modeling.recurrent.recurrent_cache import RecurrentCache, RecurrentCacheLayer

pytestmark = pytest.mark.upstream


def begun(*, recording: bool = False, rows: int = 2) -> RecurrentCache:
    """Two layers before the first token, the first with keys."""
    cache = RecurrentCache(2)
    if recording:
        cache.activate_past_recording()
    for index, layer in enumerate(cache.layers):
        keys = None if index else torch.arange(rows * 6.0).view(rows, 3, 2)
        layer.lazy_initialization(keys, torch.zeros(rows, 1, 1, 4))
    return cache


def read(cache: RecurrentCache, *tokens: float) -> None:
    """Tokens whose states are their numbers, and ten times as much in the second row."""
    states = torch.tensor([tokens, [10 * token for token in tokens]])[:, :, None, None].expand(-1, -1, 1, 4)
    for index in range(2):
        cache.update(None, states, index, length=len(tokens))


def last(cache: RecurrentCache) -> list[float]:
    return [float(value) for value in cache.layers[1].values[:, -1, 0, 0]]


def test_only_the_last_state_is_kept() -> None:
    cache = begun()
    assert cache.is_initialized and not RecurrentCache(2).is_initialized and len(cache) == 2
    read(cache, 1, 2, 3)
    read(cache, 4)
    assert last(cache) == [4, 40] and cache.get_seq_length() == 4
    assert cache.layers[0].values.shape == (2, 1, 1, 4)
    assert cache.get_max_length() == -1 and cache.get_mask_sizes(2, 0) == (6, 0)
    assert not cache.is_compileable and cache.is_croppable


def test_rows_are_reordered_copied_and_chosen() -> None:
    cache = begun()
    read(cache, 1)
    keys = cache.layers[0].keys
    cache.reorder_cache(torch.tensor([1, 0]))
    assert last(cache) == [10, 1] and torch.equal(cache.layers[0].keys, keys[[1, 0]]) and cache.layers[1].keys is None
    cache.batch_repeat_interleave(2)
    assert last(cache) == [10, 10, 1, 1] and cache.layers[0].keys.shape == (4, 3, 2)
    cache.batch_select_indices(torch.tensor([3, 0]))
    assert last(cache) == [1, 10]
    cache.reset()
    assert not cache.is_initialized and cache.get_seq_length() == 0 and cache.layers[0].values is None


def test_recorded_tokens_can_be_taken_back() -> None:
    cache = begun(recording=True)
    read(cache, 1, 2)
    read(cache, 3)
    assert cache.layers[0].values.shape[1] == 4  # the state before the first token too
    cache.crop(-1)
    assert last(cache) == [2, 20] and cache.get_seq_length() == 2 and cache.layers[0].values.shape[1] == 1
    read(cache, 5, 6)
    cache.crop(0)
    assert last(cache) == [6, 60] and cache.get_seq_length() == 4
    started = begun(recording=True)
    read(started, 1, 2)
    started.crop(-2)
    assert last(started) == [0, 0] and started.get_seq_length() == 0


@pytest.mark.parametrize("removed", [-1, -5, 1])
def test_what_was_not_recorded_cannot_be_taken_back(removed: int) -> None:
    cache = begun()
    read(cache, 1, 2)
    with raises_sentence(f"crop({removed})", "2", "activate_past_recording()"):
        cache.crop(removed)
    assert last(cache) == [2, 20]
    with raises_sentence("crop(-1)", "0"):
        RecurrentCacheLayer().crop(-1)
