"""Attention patterns: which pairs of tokens may attend, each a predicate on (batch, head, query index, key index).

Shapes: B batch, S keys (all that a cache can hold).
"""

from collections.abc import Callable

import torch
from torch import Tensor
from transformers.masking_utils import bidirectional_mask_function

from ...configuration.configuration_stack import StackConfig

# transformers annotates predicates with int, and calls them with tensors.
Predicate = Callable[..., Tensor | bool]


def full_pattern(config: StackConfig, token_index: Tensor) -> Predicate:
    """Admit every pair: the path between two tokens is one step, at quadratic cost.

    Source: Vaswani et al. 2017, Attention Is All You Need, §4, https://arxiv.org/abs/1706.03762
    Shapes: token_index (B, S), counted without padding -> predicate
    """
    return bidirectional_mask_function


def sliding_pattern(config: StackConfig, token_index: Tensor) -> Predicate:
    """Admit pairs nearer than `sliding_window`, the token itself counted; depth widens the receptive field linearly.

    Source: Beltagy et al. 2020, Longformer, §3.1, https://arxiv.org/abs/2004.05150
    Shapes: token_index (B, S), counted without padding -> predicate
    """
    window = config.sliding_window or 0  # the config asks for one where this pattern is used
    return by_distance(token_index, lambda distance: distance < window)


def dilated_pattern(config: StackConfig, token_index: Tensor) -> Predicate:
    """Admit every `dilation`-th token of a window that is as many times as wide.

    Source: Beltagy et al. 2020, Longformer, §3.1, figure 2 (c), https://arxiv.org/abs/2004.05150
    Shapes: token_index (B, S), counted without padding -> predicate
    """
    dilation = config.dilation
    window = (config.sliding_window or 0) * dilation
    return by_distance(token_index, lambda distance: (distance < window) & (distance % dilation == 0))


def strided_pattern(config: StackConfig, token_index: Tensor) -> Predicate:
    """Admit pairs less than a stride of `block_size` apart, or a multiple of it: any token is two steps away.

    Every head sees the pairs of both of the paper's, as its merged heads do.

    Source: Child et al. 2019, Generating Long Sequences with Sparse Transformers, §4.3, §5.1, figure 3 (b),
        https://arxiv.org/abs/1904.10509
    Shapes: token_index (B, S), counted without padding -> predicate
    """
    stride = config.block_size
    return by_distance(token_index, lambda distance: (distance < stride) | (distance % stride == 0))


def by_distance(token_index: Tensor, linked: Callable[[Tensor], Tensor]) -> Predicate:
    """Admit pairs of tokens by their distance alone."""
    return lambda batch, head, query, key: linked((token_index[batch, query] - token_index[batch, key]).abs())


def fixed_pattern(config: StackConfig, token_index: Tensor) -> Predicate:
    """Admit pairs in the same block of `block_size`, and the last `fixed_columns` tokens of every block as keys.

    The ends of blocks summarise them for all later tokens. Every head sees the pairs of both of the
    paper's, as its merged heads do.

    Source: Child et al. 2019, Generating Long Sequences with Sparse Transformers, §4.3, §5.1, figure 3 (c),
        https://arxiv.org/abs/1904.10509
    Shapes: token_index (B, S), counted without padding -> predicate
    """
    blocks = token_index // config.block_size
    summaries = is_summary(config, token_index)

    return lambda batch, head, query, key: (blocks[batch, query] == blocks[batch, key]) | summaries[batch, key]


def is_summary(config: StackConfig, token_index: Tensor) -> Tensor:
    """Return which tokens are among the last `fixed_columns` of a block: (B, S) -> booleans (B, S)."""
    return token_index % config.block_size >= config.block_size - config.fixed_columns


def block_sparse_pattern(config: StackConfig, token_index: Tensor) -> Predicate:
    """Admit pairs in the same or a neighbouring block of `block_size`, or with the first block, which is global.

    Two tokens are at most two steps apart, through the global block. Blocks count the real tokens of a document, so
    neither padding in front nor shifted positions move them.

    Source: Zaheer et al. 2020, Big Bird, §2, https://arxiv.org/abs/2007.14062 (without random blocks)
    Shapes: token_index (B, S), counted without padding -> predicate
    """
    blocks = token_index // config.block_size
    return touches(blocks == 0, by_distance(blocks, lambda distance: distance <= 1))


def random_pattern(config: StackConfig, token_index: Tensor) -> Predicate:
    """Admit the pairs of `block_sparse`, and for each block of queries `num_random_blocks` more blocks of keys.

    All layers of this pattern share one layout. It follows from `random_blocks_seed` and the number of a block alone: a
    longer text, a cache and a saved model have the same.

    Source: Zaheer et al. 2020, Big Bird, §2, https://arxiv.org/abs/2007.14062
    Shapes: token_index (B, S), counted without padding -> predicate
    """
    near = block_sparse_pattern(config, token_index)
    blocks = token_index // config.block_size
    drawn = random_blocks(config, blocks)

    def linked(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor | bool:
        seen, key_block = near(batch, head, query, key), blocks[batch, key]
        for each in drawn:
            seen = seen | (each[batch, query] == key_block)
        return seen

    return linked


def random_blocks(config: StackConfig, blocks: Tensor) -> list[Tensor]:
    """Draw `num_random_blocks` blocks of keys for each block of queries: (...) -> as many times (...).

    None of them is the first block or near; as many lie after a block as before it, the last of them maybe past the end
    of the text. Those before it and after it are divided evenly, and one is drawn from each part, so that all differ
    where there are enough.
    """
    count, blocks = config.num_random_blocks, blocks.long()
    before = (blocks - 2).clamp(min=0)
    choices = before if config.causal else 2 * before + count
    drawn = []
    for index in range(count):
        share = mix(mix(config.random_blocks_seed + 977 * blocks) + index)
        start, end = index * choices // count, (index + 1) * choices // count
        place = start + share * (end - start) // 2**31
        drawn.append(torch.where(place < before, 1 + place, blocks + 2 + place - before))
    return drawn


def mix(numbers: Tensor) -> Tensor:
    """Scatter whole numbers over 31 bits, neighbours far apart, the same on every device.

    Source: Appleby 2011, MurmurHash3, its last step, https://github.com/aappleby/smhasher
    """
    numbers = numbers & 0x7FFFFFFF
    numbers = ((numbers ^ (numbers >> 16)) * 0x7FEB352D) & 0x7FFFFFFF
    numbers = ((numbers ^ (numbers >> 15)) * 0x46CA68BD) & 0x7FFFFFFF
    return numbers ^ (numbers >> 16)


def row_pattern(config: StackConfig, token_index: Tensor) -> Predicate:
    """Admit pairs at most `grid_columns` apart: a token reads the one above it and all between; the text is global.

    With a layer of `column` a token of an image reaches any before it in two steps.

    Source: Ramesh et al. 2021, Zero-Shot Text-to-Image Generation, appendix B.1, figure 11 (a),
        https://arxiv.org/abs/2102.12092; Child et al. 2019, Sparse Transformers, §4.3, https://arxiv.org/abs/1904.10509
    Shapes: token_index (B, S), counted without padding -> predicate
    """
    return grid_pattern(config, token_index, lambda distance: distance <= config.grid_columns)


def column_pattern(config: StackConfig, token_index: Tensor) -> Predicate:
    """Admit pairs in one column of the grid, whatever their distance; the text is global.

    Source: Ramesh et al. 2021, appendix B.1, figure 11 (b), https://arxiv.org/abs/2102.12092
    Shapes: token_index (B, S), counted without padding -> predicate
    """
    return grid_pattern(config, token_index, lambda distance: distance % config.grid_columns == 0)


def convolutional_pattern(config: StackConfig, token_index: Tensor) -> Predicate:
    """Admit pairs within a window of `grid_kernel` rows and columns around the query; the text is global.

    A window that is cut off at one end of a row goes on at the other end of the next, as rows are read.

    Source: Ramesh et al. 2021, appendix B.1, figure 11 (d), https://arxiv.org/abs/2102.12092
    Shapes: token_index (B, S), counted without padding -> predicate
    """
    columns, reach = config.grid_columns, config.grid_kernel // 2

    return grid_pattern(
        config, token_index, lambda far: (far <= reach * columns + reach) & ((far + reach) % columns <= 2 * reach)
    )


def grid_pattern(config: StackConfig, token_index: Tensor, linked: Callable[[Tensor], Tensor]) -> Predicate:
    """Admit pairs by their distance in reading order, and all pairs with a token of the text."""
    return touches(token_index < config.text_length, by_distance(token_index, linked))


def touches(chosen: Tensor, linked: Predicate) -> Predicate:
    """Admit linked pairs, and those with a chosen token (B, S), which attends to all and to which all attend.

    Source: Beltagy et al. 2020, Longformer, §3.1, figure 2 (d), https://arxiv.org/abs/2004.05150; Ainslie et al. 2020,
        ETC, §3.1, https://arxiv.org/abs/2004.08483
    """
    return lambda batch, head, query, key: linked(batch, head, query, key) | chosen[batch, query] | chosen[batch, key]


PATTERNS: dict[str, Callable[[StackConfig, Tensor], Predicate]] = {
    "full": full_pattern,
    "sliding": sliding_pattern,
    "dilated": dilated_pattern,
    "block_sparse": block_sparse_pattern,
    "random": random_pattern,
    "strided": strided_pattern,
    "fixed": fixed_pattern,
    "row": row_pattern,
    "column": column_pattern,
    "convolutional": convolutional_pattern,
}
