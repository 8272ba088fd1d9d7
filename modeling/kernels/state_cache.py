"""The cache of kernels that keep a state: of one size, whatever the number of tokens that led to it.

Shapes: B batch, G heads of the state, T tokens, K and V widths of keys and values.
"""

from collections.abc import Callable
from typing import Any, NoReturn, cast

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, EncoderDecoderCache

from ...configuration.axes import STATE_KERNELS
from ...configuration.configuration_stack import StackConfig

# The tensors of a state, batch first; and the inputs of the next, tokens in the third dimension.
State = tuple[Tensor, ...]
Advance = Callable[[State, State], State]


class FixedSizeLayer(CacheLayerMixin):
    """Base of cache layers that keep a state and not the tokens: counting tokens and moving rows."""

    is_croppable = True
    supports_early_init = False

    def __init__(self) -> None:
        super().__init__()
        self.record_past, self.length = False, 0

    def activate_past_recording(self) -> None:
        """Keep the inputs from now on, so that `crop` can remove tokens."""
        self.record_past = True

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


class StateLayer(FixedSizeLayer):
    """One layer's state after the last token, and how many tokens led there.

    While it records, it keeps the inputs since then, from which the state at any earlier token is computed again: that
    takes less than a state for each token. transformers' layer for linear attention neither counts nor removes tokens.

    Shapes: keys (B, G, K, V), the sum that queries read; values the rest of the kernel's state, or None
    """

    def __init__(self) -> None:
        super().__init__()
        self.start: State | None = None
        self.read: State | None = None
        self.advance: Advance | None = None

    @property
    def state(self) -> State | None:
        """The state after the last token, None before the first."""
        parts: tuple[Tensor | None, ...] = (self.keys, self.values)
        return tuple(part for part in parts if part is not None) if self.is_initialized else None

    @state.setter
    def state(self, state: State) -> None:
        self.keys, self.values, *_ = (*state, None)
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: the first state is zero."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object) -> NoReturn:
        """Raise, for keys and values of single tokens have no place in a state."""
        raise ValueError("a cache of states was given keys and values; give each model its own cache")

    def store(self, state: State, read: State, advance: Advance) -> None:
        """Store the state after new tokens; `advance` computes it from the last state and the inputs `read`."""
        if self.record_past:
            self.start = self.start or self.state or tuple(map(torch.zeros_like, state))
            earlier = zip(self.read, read, strict=True) if self.read else ()
            self.read = tuple(torch.cat(parts, dim=2) for parts in earlier) or read
            self.advance = advance
        self.state = state
        self.length += read[0].shape[2]

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last -`tokens_to_remove` tokens, and keep nothing but the state reached."""
        recorded = self.read[0].shape[2] if self.read else 0
        if not 0 <= -tokens_to_remove <= recorded:
            raise ValueError(
                f"crop({tokens_to_remove}) of a state after {self.length} tokens, which goes back by 0 to {recorded}; "
                "give a negative number, and call activate_past_recording() before the tokens are read"
            )
        if tokens_to_remove and self.read and self.start and self.advance:
            kept = recorded + tokens_to_remove
            read = tuple(part[:, :, :kept] for part in self.read)
            self.state = self.advance(self.start, read) if kept else self.start
        self.start = self.read = None
        self.length += tokens_to_remove

    def change_rows(self, change: Callable[[Tensor], Tensor]) -> None:
        super().change_rows(change)
        self.start, self.read = (parts and tuple(map(change, parts)) for parts in (self.start, self.read))

    def offload(self) -> None:
        """Leave the state where it is: it is small."""

    def prefetch(self) -> None:
        """Leave the state where it is."""

    def reset(self) -> None:
        super().reset()
        self.start = self.read = None


def hold_states(config: StackConfig, cache: object) -> None:
    """Let an empty cache of any kind hold states where the kernel keeps one; a cache of keys and values is refused.

    transformers makes caches from the config before a model sees them. Layers for linear attention, which it could make
    of other words, do not know how many tokens they have read.
    """
    if config.kernel not in STATE_KERNELS or cache is None:
        return
    parts: tuple[Any, ...] = (cache,)
    if isinstance(cache, EncoderDecoderCache):
        parts = (cache.self_attention_cache, cache.cross_attention_cache)
    for part in parts:
        if not all(isinstance(layer, StateLayer) for layer in part.layers):
            if any(layer.get_seq_length() for layer in part.layers):
                raise ValueError(
                    f"past_key_values hold keys and values, but kernel={config.kernel!r} keeps a state; give the model "
                    "a cache that it has filled itself"
                )
            part.layers = []
        part.layers += [StateLayer() for _ in range(config.num_hidden_layers - len(part.layers))]


def state_layer(cache: Cache | None, index: int) -> StateLayer | None:
    """Return the layer of a cache that holds the state of self-attention; None without a cache."""
    own = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
    return None if own is None else cast(StateLayer, own.layers[index])
