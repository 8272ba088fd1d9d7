"""Attention patterns: which pairs of tokens may attend, each a predicate on (batch, head, query index, key index).

Shapes: B batch, S keys (all that a cache can hold).
"""

from collections.abc import Callable

from torch import Tensor
from transformers.masking_utils import bidirectional_mask_function

from ..configuration.configuration_stack import StackConfig

# transformers declares its own on whole numbers, and calls all of them with tensors.
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

    def near(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query - key).abs() < window

    def near_without_padding(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (token_index[batch, query] - token_index[batch, key]).abs() < window

    return near_without_padding if config.has_padding_inside else near


def block_sparse_pattern(config: StackConfig, token_index: Tensor) -> Predicate:
    """Admit pairs in the same or a neighbouring block of `block_size`, or with the first block, which is global.

    Two tokens are at most two steps apart, through the global block. Blocks count the real tokens of a document, so
    neither padding in front nor shifted positions move them.

    Source: Zaheer et al. 2020, Big Bird, §2, https://arxiv.org/abs/2007.14062 (without random blocks)
    Shapes: token_index (B, S), counted without padding -> predicate
    """
    blocks = token_index // config.block_size

    def linked(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        query_block, key_block = blocks[batch, query], blocks[batch, key]
        near = (query_block - key_block).abs() <= 1
        return near | (key_block == 0) | (query_block == 0)

    return linked


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

    def within(distance: Tensor) -> Tensor:
        return (distance <= reach * columns + reach) & ((distance + reach) % columns <= 2 * reach)

    return grid_pattern(config, token_index, within)


def grid_pattern(config: StackConfig, token_index: Tensor, linked: Callable[[Tensor], Tensor]) -> Predicate:
    """Admit pairs by their distance in reading order, and all pairs with a token of the text."""

    def admits(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        first, second = token_index[batch, query], token_index[batch, key]
        return linked((first - second).abs()) | (first < config.text_length) | (second < config.text_length)

    return admits


PATTERNS: dict[str, Callable[[StackConfig, Tensor], Predicate]] = {
    "full": full_pattern,
    "sliding": sliding_pattern,
    "block_sparse": block_sparse_pattern,
    "row": row_pattern,
    "column": column_pattern,
    "convolutional": convolutional_pattern,
}
