"""The cache of kernels that keep a state: of one size, whatever the number of tokens that led to it.

Shapes: B batch, G heads of the state, T tokens.
"""

from collections.abc import Callable
from typing import NoReturn, cast

from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer, EncoderDecoderCache

from ...configuration.axes import STATE_KERNELS
from ...configuration.configuration_stack import StackConfig

# The tensors of a state, batch first.
State = tuple[Tensor, ...]


class StateLayer(CacheLayerMixin):
    """One layer's state after the last token, and the number of tokens that led there, which it does not keep.

    transformers' layer for linear attention does not count tokens.

    Shapes: keys and values are the first and second tensor of the state, or None
    """

    supports_early_init = False

    def __init__(self) -> None:
        super().__init__()
        self.length = 0

    @property
    def state(self) -> State | None:
        """The state after the last token, None before the first."""
        parts: tuple[Tensor | None, ...] = (self.keys, self.values)
        return tuple(part for part in parts if part is not None) if self.is_initialized else None

    def store(self, state: State, tokens: int) -> None:
        """Store the state after so many new tokens."""
        self.keys, self.values, *_ = (*state, None)
        self.length += tokens
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: the first state is zero."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object) -> NoReturn:
        """Raise, for keys and values of single tokens have no place in a state."""
        raise ValueError("a cache of states was given keys and values; give each model its own cache")

    def crop(self, tokens_to_remove: int) -> None:
        """Raise: generation that takes tokens back needs a cache of tokens."""
        raise ValueError(f"crop({tokens_to_remove}) of a state, which keeps no tokens; generate without an assistant")

    def change_rows(self, change: Callable[[Tensor], Tensor]) -> None:
        """Apply the same change to the rows of all that is kept."""
        self.keys, self.values = (None if kept is None else change(kept) for kept in (self.keys, self.values))

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Replace row i by row `beam_idx[i]`."""
        self.change_rows(lambda kept: kept.index_select(0, beam_idx.to(kept.device)))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows."""
        self.change_rows(lambda kept: kept[indices.to(kept.device)])

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Put copies of each row behind it."""
        self.change_rows(lambda kept: kept.repeat_interleave(repeats, dim=0))

    def reset(self) -> None:
        """Remove all that is kept."""
        self.keys, self.values, self.length, self.is_initialized = None, None, 0, False

    def get_seq_length(self) -> int:
        """Return the number of tokens that were read."""
        return self.length

    def get_max_length(self) -> int:
        """Return -1, transformers' word for no limit but the number of tokens."""
        return -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of keys that a mask over tokens would have, and the first of them."""
        return self.length + query_length, 0

    def offload(self) -> None:
        """Leave the state where it is: it is small."""

    def prefetch(self) -> None:
        """Leave the state where it is."""


def hold_states(config: StackConfig, cache: object) -> None:
    """Let an empty cache of any kind hold states where a kernel keeps one; a cache of keys and values is refused."""
    if not config.keeps_state or cache is None:
        return
    parts: tuple[Cache, ...] = (cast(Cache, cache),)
    if isinstance(cache, EncoderDecoderCache):
        parts = (cache.self_attention_cache, cache.cross_attention_cache)
    for part in parts:
        part.layers += [DynamicLayer() for _ in range(config.num_hidden_layers - len(part.layers))]
        for index, word in enumerate(config.layer_kernels):
            if word not in STATE_KERNELS or isinstance(part.layers[index], StateLayer):
                continue
            if cast(CacheLayerMixin, part.layers[index]).get_seq_length():
                raise ValueError(
                    f"past_key_values hold keys and values, but kernel={config.kernel!r} keeps a state; give the model "
                    "a cache that it has filled itself"
                )
            part.layers[index] = StateLayer()


def state_layer(cache: Cache | None, index: int) -> StateLayer | None:
    """Return the layer of a cache that holds the state of self-attention; None without a cache."""
    own = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
    return None if own is None else cast(StateLayer, own.layers[index])
