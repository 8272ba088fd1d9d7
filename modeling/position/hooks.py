"""Hooks of position encodings: the places where one can act, none of which does anything by default.

Shapes: B batch, T queries, S keys, D hidden_size, H heads, K head_dim.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...configuration.configuration_stack import StackConfig

Grid = tuple[int, int] | None


class Embedded(NamedTuple):
    """The result of a frontend: one vector for each token, and how the tokens lie.

    Shapes: hidden (B, T, D); padding_mask (B, T), true where a token is real, or None where all are; grid the numbers
    of rows and columns of an image, of which the last rows * columns tokens are patches.
    """

    hidden: Tensor
    padding_mask: Any = None
    grid: Grid = None

    def requires_grad_(self, *args: bool) -> "Embedded":
        """Let the vectors take a gradient, as transformers asks of the output of input embeddings."""
        return self._replace(hidden=self.hidden.requires_grad_(*args))


class Rotation(NamedTuple):
    """Cosines and sines (B or 1, 1, T, K) by which queries are rotated, and those for keys.

    The sines of the first half are negative: its components become x_i cos - x_(i + K/2) sin.
    """

    query: tuple[Tensor, Tensor]
    key: tuple[Tensor, Tensor]


class PositionState(NamedTuple):
    """The part of an encoding that acts inside the layers of one pattern; None where it adds nothing.

    `rotation` turns queries and keys of self-attention. `query_key` (B, T, D) is added to the input of their projection
    and of the queries' projection of cross-attention, `memory_key` (B, S, D) to that of its keys.
    `bias` (B or 1, H, T, S) is added to the scores of self-attention. With `vectors` (N, D) it has the number of one of
    them for each pair (B or 1, 1, T, S), from which attention computes a bias.
    """

    rotation: Rotation | None = None
    query_key: Tensor | None = None
    memory_key: Tensor | None = None
    bias: Tensor | None = None
    vectors: Tensor | None = None


NO_POSITION = PositionState()


class Position(nn.Module):
    """Leave order unseen: without a mask the stack is equivariant to permutation.

    Acts at: nowhere; every other encoding overrides the hook where it acts.
    Source: Vaswani et al. 2017, Attention Is All You Need, §3.5, https://arxiv.org/abs/1706.03762
    Shapes: hidden (B, T, D), positions (B or 1, T) absolute, counted from 0 at a document's first real token
    """

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.config = config
        # Layers without the encoding, where words differ.
        words = config.position if isinstance(config.position, list) else []
        self.left_out = frozenset(layer for layer, word in enumerate(words) if word == "none")

    def init_parameters(self, std: float) -> None:
        """Initialise parameters of the encoding itself; its tables and linear maps start as all others do."""

    def embed(self, embedded: Embedded, positions: Tensor) -> Tensor:
        """Act on the stack's input: (B, T, D), (B or 1, T) -> (B, T, D)."""
        return embedded.hidden

    def rotation(
        self, positions: Tensor, dtype: torch.dtype, pattern: str | None = None, grid: Grid = None
    ) -> Rotation | None:
        """Return the rotation of queries and keys in layers of a pattern: (B or 1, T) -> (B or 1, 1, T, K)."""
        return None

    def query_key(self, embedded: Embedded) -> Tensor | None:
        """Return the embeddings added to the input of the query and key projections of every layer: (B, T, D)."""
        return None

    def bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        """Return the score bias: (B or 1, T), (B or 1, S) -> (B or 1, H, T, S)."""
        return None

    def vectors(self, device: torch.device) -> Tensor | None:
        """Return vectors for a bias that numbers them: (N, D)."""
        return None


def apply_rotation(query: Tensor, key: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys; without a rotation return them as they are: 2 x (B, H, T, K) -> same."""
    return (query, key) if rotation is None else (rotate(query, *rotation.query), rotate(key, *rotation.key))


def rotate(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Turn each pair (i, i + K/2) of components by its angle; components past the angles stay: (B, H, T, K) -> same."""
    width = cosines.shape[-1]
    if width < heads.shape[-1]:
        return torch.cat((rotate(heads[..., :width], cosines, sines), heads[..., width:]), dim=-1)
    return heads * cosines + heads.roll(width // 2, dims=-1) * sines
