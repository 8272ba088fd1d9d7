"""The context of a layer: mask, positions, memory, cache.

Shapes: B batch, T tokens, S keys or memory, D hidden_size.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from torch import Tensor
from transformers.cache_utils import Cache

from .masks.masking import Mask
from .position.hooks import NO_POSITION, PositionState

Projected = tuple[Tensor, Tensor, Tensor]
Projection = Callable[..., Projected]


class Memory(NamedTuple):
    """Memory of cross-attention: an encoder's output (B, S, D), its mask, embeddings added to keys (B, S, D)."""

    hidden: Tensor | None = None
    mask: Mask = None
    position: Tensor | None = None


class LayerContext(NamedTuple):
    """Inputs of a layer besides hidden states; a tuple, in which `device_map`, FSDP and dynamo find tensors.

    `queries` is the index of tokens to compute, None for all, `options` are for backends, `project` for `projected`.
    """

    mask: Mask = None
    position: PositionState = NO_POSITION
    memory: Memory = Memory()
    cache: Cache | None = None
    backend: str | None = None
    weights: bool = False
    queries: Tensor | None = None
    options: Mapping[str, object] = {}
    project: Projection | None = None

    def select(self, hidden: Tensor) -> Tensor:
        """Return the tokens that the layer computes: (B, T, D) -> (B, tokens, D)."""
        return hidden if self.queries is None else hidden.index_select(1, self.queries)


NO_CONTEXT = LayerContext()
