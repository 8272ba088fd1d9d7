"""The keys that queries of a pattern may see: near ones, those that all see, and those drawn for a block.

`strided` has no chunks of queries with few keys of their own, as near keys and columns lie apart for each; so it keeps
the dense mask, as `full` does.

Shapes: B batch, S keys; R rows of masks, 1 where all of a batch are alike, N chunks, C queries in a chunk.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ...configuration.configuration_stack import StackConfig
from ..masks.pattern import is_summary, random_blocks
from ..position.token_layout import TokenLayout


class Reach(NamedTuple):
    """The reach of a pattern: `near` keys on either side of a query, of which every `step`-th counts.

    The `first` tokens of a document see all and all see them; with `summaries` all see the ends of blocks, with `drawn`
    a block sees others that are drawn for it.
    """

    near: int
    step: int = 1
    first: int = 0
    summaries: bool = False
    drawn: bool = False


def reaches(config: StackConfig) -> dict[str, Reach]:
    """Return the reach of each pattern that has one; a config asks for a window where a pattern needs one."""
    window, block, columns = (config.sliding_window or 1) - 1, config.block_size, config.grid_columns
    square = (columns + 1) * (config.grid_kernel // 2)
    return {
        "sliding": Reach(window),
        "dilated": Reach(window, step=config.dilation),
        "block_sparse": Reach(2 * block - 1, first=block),
        "random": Reach(2 * block - 1, first=block, drawn=True),
        "fixed": Reach(block - 1, summaries=True),
        "row": Reach(columns, first=config.text_length),
        "convolutional": Reach(square, first=config.text_length),
    }


def reach_of(config: StackConfig, pattern: str) -> Reach | None:
    """Return how far a pattern reaches; None where any token may see any other."""
    reach = reaches(config).get(pattern)
    return None if reach is None else reach._replace(first=max(reach.first, config.num_global_tokens))


def tokens_for_all(config: StackConfig, reach: Reach, layout: TokenLayout) -> Tensor | None:
    """Return which tokens all others see (B or 1, S); None where there are none."""
    chosen = layout.first(reach.first)
    if not reach.summaries:
        return chosen
    summaries = is_summary(config, layout.tokens)
    summaries = summaries if layout.padding is None else summaries & layout.padding
    return summaries if chosen is None else summaries | chosen


def drawn_count(config: StackConfig, reach: Reach, queries: int) -> int:
    """Return how many keys are drawn for a chunk of queries, the same one twice where two blocks draw it."""
    return len(block_starts(config, queries)) * config.num_random_blocks * config.block_size if reach.drawn else 0


def block_starts(config: StackConfig, queries: int) -> list[int]:
    """Return places in a chunk of queries among which each of its blocks has one, wherever blocks begin."""
    return [*range(0, queries - 1, config.block_size), queries - 1]


def drawn_keys(config: StackConfig, layout: TokenLayout, queries: Tensor) -> Tensor:
    """Return the places of the keys drawn for each chunk, which may lie outside the row: (1, N, C) -> (R, N, E)."""
    places = queries[0, :, block_starts(config, queries.shape[-1])].long()
    tokens = layout.tokens[:, places]
    drawn = torch.stack(random_blocks(config, tokens // config.block_size), dim=-1)
    inside = torch.arange(config.block_size)
    keys = (places - tokens)[..., None, None] + drawn[..., None] * config.block_size + inside
    return keys.flatten(2)
