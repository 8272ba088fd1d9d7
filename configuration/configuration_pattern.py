"""Attention patterns: the words of the layers, and the sizes that they need."""

from typing import TypeVar, get_args

from .axes import PatternName
from .configuration_base import QkvConfig
from .fields import at_least

Word = TypeVar("Word", bound=str)
# Patterns that need every past key keep a full cache; a window can forget.
CACHE_LAYER_TYPES = dict.fromkeys(get_args(PatternName), "full_attention") | {"sliding": "sliding_attention"}


def words_of_layers(words: Word | list[Word], count: int) -> list[Word]:
    """Return the word of each layer, of one for all or a list."""
    return words if isinstance(words, list) else [words] * count


def check_words_of_layers(name: str, words: list[Word], count: int) -> None:
    """Raise ValueError where a list has another number of words than there are layers."""
    if len(words) != count:
        raise ValueError(f"{name}={words} has {len(words)} words for num_hidden_layers={count}")


class PatternConfig(QkvConfig):
    """Configure which tokens attend to each other in each layer of a stack.

    Args:
        pattern: Which tokens attend to each other, one word for all layers or a list with one for each: `full`;
            `sliding`, closer than `sliding_window`; `dilated`, the same with gaps of `dilation`; `block_sparse`, in the
            same, a neighbouring or the first block of `block_size`; `random`, these and `num_random_blocks` more;
            `strided`, less than `block_size` or a multiple of it apart; `fixed`, in the same block or with the last
            `fixed_columns` tokens of any; `row`, at most `grid_columns` apart; `column`, in the same column of the
            grid; `convolutional`, within `grid_kernel` rows and columns. A causal stack attends to the past alone.
        sliding_window: Window of `pattern="sliding"` and `"dilated"` in tokens: |query - key| < window.
        dilation: Distance between two tokens that a `dilated` window has beside each other; 1 is no gap.
        block_size: Length in tokens of a block of `block_sparse`, `random` and `fixed`, and the stride of `strided`.
        fixed_columns: Number of tokens at the end of a block of `pattern="fixed"` to which all attend.
        num_random_blocks: Number of blocks that `pattern="random"` draws for each block.
        random_blocks_seed: Seed of these draws; a saved model keeps its layout.
        num_global_tokens: Number of first tokens that attend to all and to which all attend, whatever the pattern.
    """

    num_hidden_layers: int = at_least(1, 12, most=10_000)
    pattern: PatternName | list[PatternName] = "full"
    sliding_window: int | None = at_least(1)
    dilation: int = at_least(1, 2)
    block_size: int = at_least(1, 64)
    fixed_columns: int = at_least(1, 8)
    num_random_blocks: int = at_least(1, 3)
    random_blocks_seed: int = at_least(0, 0, most=2**31 - 1)
    num_global_tokens: int = at_least(0, 0)
    # Window of a convolution over a grid; a field of stacks whose tokens may fill one.
    grid_kernel = 1

    @property
    def text_length(self) -> int:
        """Number of tokens before the grid."""
        return 0

    @property
    def grid_columns(self) -> int:
        """Number of columns of the grid that the tokens after the text fill row by row."""
        return 1

    @property
    def layer_patterns(self) -> list[PatternName]:
        """The pattern of each layer."""
        return words_of_layers(self.pattern, self.num_hidden_layers)

    def window_of(self, layer_index: int) -> int | None:
        """Return the window of a layer in tokens, the token itself counted; None where keys outside are read, too."""
        is_window = self.layer_patterns[layer_index] == "sliding" and not self.num_global_tokens
        return self.sliding_window if is_window else None

    @property
    def layer_types(self) -> list[str]:
        """Pattern of each layer in transformers' words, from which caches are built."""
        # transformers' cache of a window of one token, which needs no other, forgets nothing and says it forgot all.
        forgets = self.sliding_window != 1 and not self.num_global_tokens
        words = CACHE_LAYER_TYPES | ({} if forgets else {"sliding": "full_attention"})
        return [words[pattern] for pattern in self.layer_patterns]

    def validate_layer_type(self) -> None:
        """Check that each layer has a pattern, with the sizes it needs; named as `pattern`, not as `layer_types`."""
        patterns, count = self.layer_patterns, self.num_hidden_layers
        check_words_of_layers("pattern", patterns, count)
        for word in {"sliding", "dilated"} & {*patterns}:
            if self.sliding_window is None:
                raise ValueError(f"pattern={word!r} needs sliding_window >= 1 (the token itself counts), got None")
        if "convolutional" in patterns and self.grid_kernel % 2 == 0:
            raise ValueError(f"pattern='convolutional' has a middle, so grid_kernel={self.grid_kernel} must be odd")
        if "fixed" in patterns and self.fixed_columns >= self.block_size:
            columns = f"fixed_columns={self.fixed_columns}"
            raise ValueError(f"pattern='fixed' needs {columns} below block_size={self.block_size}")
