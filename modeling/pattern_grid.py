"""Which pairs may attend where tokens stand in rows and columns, such as those of an image after its caption?

Shapes: B batch, S keys (all that a cache can hold).
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..configuration.configuration_stack import StackConfig

Predicate = Callable[[Any, Any, Any, Any], Any]


def row_pattern(config: StackConfig, counts: Tensor) -> Predicate:
    """Pairs at most `grid_columns` apart, so that a token sees the one above it and all between; the text is global.

    With a layer of `column` a token of an image reaches any before it in two steps.

    Source: Ramesh et al. 2021, Zero-Shot Text-to-Image Generation, appendix B.1, figure 11 (a),
        https://arxiv.org/abs/2102.12092; Child et al. 2019, Sparse Transformers, §4.3, https://arxiv.org/abs/1904.10509
    Shapes: counts (B, S) -> predicate
    """
    return on_grid(config, counts, lambda apart: apart <= config.grid_columns)


def column_pattern(config: StackConfig, counts: Tensor) -> Predicate:
    """Pairs in one column of the grid, whatever their distance; the text is global.

    Source: Ramesh et al. 2021, appendix B.1, figure 11 (b), https://arxiv.org/abs/2102.12092
    Shapes: counts (B, S) -> predicate
    """
    return on_grid(config, counts, lambda apart: apart % config.grid_columns == 0)


def convolutional_pattern(config: StackConfig, counts: Tensor) -> Predicate:
    """Pairs within a window of `grid_kernel` rows and columns around the query; the text is global.

    A window that is cut off at one end of a row goes on at the other end of the next, as rows are read.

    Source: Ramesh et al. 2021, appendix B.1, figure 11 (d), https://arxiv.org/abs/2102.12092
    Shapes: counts (B, S) -> predicate
    """
    columns, reach = config.grid_columns, config.grid_kernel // 2

    def within(apart: Tensor) -> Tensor:
        return (apart <= reach * columns + reach) & ((apart + reach) % columns <= 2 * reach)

    return on_grid(config, counts, within)


def on_grid(config: StackConfig, counts: Tensor, linked: Callable[[Tensor], Tensor]) -> Predicate:
    """Pairs so far apart in the order of reading, and all of which one is a token of the text."""

    def seen(batch: Any, head: Any, query: Any, key: Any) -> Tensor:
        first, second = counts[batch, query], counts[batch, key]
        return linked((first - second).abs()) | (first < config.text_length) | (second < config.text_length)

    return seen
