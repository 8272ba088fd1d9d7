"""The cache of a recurrent decoder: a state for each layer, which generation can reorder.

Shapes: B batch, S sources, R vectors of a cell's state, D hidden_size, N states kept, A attention_size.
"""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from ..kernels.state_cache import FixedSizeLayer


class RecurrentCacheLayer(FixedSizeLayer):
    """One layer's state after the last token; of the first layer, its keys, too.

    While it records, it keeps the state after each token, so that tokens can be taken back. `keys` are (B, S, A) or
    None, `values` are states (B, N, R, D).
    """

    def lazy_initialization(self, key_states: Tensor | None, value_states: Tensor) -> None:
        """Take the keys and the state before the first token."""
        self.keys, self.values = key_states, value_states
        self.is_initialized = True

    def update(self, key_states: Tensor | None, value_states: Tensor, *args: object, **kwargs: int) -> Any:
        """Store the states after new tokens: (B, N, R, D), and how many tokens (`length`) led to them."""
        self.length += kwargs["length"]
        past = self.values if self.record_past else None
        self.values = value_states[:, -1:] if past is None else torch.cat((past, value_states), dim=1)
        return self.keys, self.values

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last -`tokens_to_remove` tokens, and keep no state but the one reached."""
        states = self.values
        last = -1 if states is None else states.shape[1] - 1
        if states is None or not 0 <= -tokens_to_remove <= last:
            raise ValueError(
                f"crop({tokens_to_remove}) of a recurrent cache of {self.length} tokens, which can go back by 0 to "
                f"{max(last, 0)}; give a negative number, and call activate_past_recording() before the tokens are read"
            )
        self.values = states[:, last + tokens_to_remove :][:, :1]
        self.length += tokens_to_remove


class RecurrentCache(Cache):
    """A state for each of the decoder's layers, of a size that does not grow with the text."""

    layers: Any

    def __init__(self, num_hidden_layers: int) -> None:
        super().__init__(layers=[RecurrentCacheLayer() for _ in range(num_hidden_layers)])

    @property
    def is_initialized(self) -> bool:
        """True once a text was begun."""
        return all(layer.is_initialized for layer in self.layers)
