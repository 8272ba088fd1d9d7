"""A pattern admits no pair beyond its reach: near keys, those that all see, and those drawn for a chunk."""

import pytest
import torch

from comparison import decoder, encoder
from qkv.modeling.fast_paths.reach import block_starts, drawn_count, drawn_keys, reach_of, reaches, tokens_for_all
from qkv.modeling.masks.pattern import PATTERNS
from qkv.modeling.position.token_layout import TokenLayout

LENGTH, SIZE = 60, 8
FIELDS = {
    **{"sliding_window": 3, "dilation": 3, "block_size": 4, "fixed_columns": 2, "num_random_blocks": 2},
    **{"text_length": 5, "grid_columns": 7, "grid_kernel": 3},
}


@pytest.mark.parametrize("pattern", reaches(encoder()))
@pytest.mark.parametrize("make", [encoder, decoder])
def test_a_pattern_admits_nothing_beyond_its_reach(make: type, pattern: str) -> None:
    config, index = make(pattern=pattern, **FIELDS), torch.arange(LENGTH)
    layout, reach = TokenLayout(None, index[None], None), reach_of(config, pattern)
    admitted = PATTERNS[pattern](config, layout.tokens)(torch.tensor(0), torch.tensor(0), index[:, None], index[None])
    distance = (index[:, None] - index).abs()
    reached = (distance <= reach.near * reach.step) & (distance % reach.step == 0)
    first, shared = layout.first(reach.first), tokens_for_all(config, reach, layout)
    reached |= torch.zeros(1, 1).bool() if first is None else first.view(-1, 1)
    reached |= torch.zeros(1, 1).bool() if shared is None else shared
    if reach.drawn:
        chunks = torch.arange(LENGTH // SIZE * SIZE).view(1, -1, SIZE)
        keys = drawn_keys(config, layout, chunks)
        assert keys.shape == (1, LENGTH // SIZE, drawn_count(config, reach, SIZE))
        for chunk, row in zip(chunks[0], keys[0], strict=True):
            reached[chunk[0] : chunk[-1] + 1, row[(row >= 0) & (row < LENGTH)]] = True
        admitted, reached = admitted[: chunks.numel()], reached[: chunks.numel()]
    admitted = admitted.tril() if config.causal else admitted
    assert not (admitted & ~reached).any()
    assert admitted.sum() > len(admitted)


@pytest.mark.parametrize("begin", range(4))
@pytest.mark.parametrize("queries", range(1, 13))
def test_each_block_of_a_chunk_is_asked(queries: int, begin: int) -> None:
    config = encoder(pattern="random", **FIELDS)
    blocks = (torch.arange(queries) + begin) // 4
    assert set(blocks[block_starts(config, queries)].tolist()) == set(blocks.tolist())


def test_global_tokens_are_reached_whatever_the_pattern() -> None:
    assert reach_of(encoder(pattern="sliding", num_global_tokens=9, **FIELDS), "sliding").first == 9
    assert reach_of(encoder(pattern="block_sparse", num_global_tokens=2, **FIELDS), "block_sparse").first == 4
    assert reach_of(encoder(pattern="full", **FIELDS), "full") is None
    assert reach_of(encoder(pattern="strided", **FIELDS), "strided") is None
