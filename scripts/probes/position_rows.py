"""Rows of a probe table that say how a model tells positions apart."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from qkv.modeling.stack import Stack
from qkv.scripts.probes.layers import Batch
from qkv.scripts.probes.places import Grid, places_of, stack_of
from qkv.scripts.probes.positions import (
    by_distance,
    cosine_similarity,
    position_bias,
    position_vectors,
    rotary_similarity,
    stock_rotary_similarity,
    table_vectors,
)
from qkv.scripts.probes.table import ProbeTable


@dataclass(frozen=True)
class PositionRows:
    """Add the similarity of positions by distance, and the bias of scores, of the stacks of a model.

    `tokens` are the numbers of tokens that the stacks had in a forward of the batch, `grids` those of its images.
    """

    table: ProbeTable
    model: nn.Module
    batch: Batch
    tokens: dict[str, int]
    grids: dict[str, Grid]

    def add(self) -> None:
        """Add the rows of all stacks."""
        own = [(path, module) for path, module in self.model.named_modules() if isinstance(module, Stack)]
        for path, module in own:
            stack = stack_of(self.model, path)
            if stack in self.tokens:
                self.add_stack(stack, module)
        if not own:
            self.add_stock()

    def add_stack(self, stack: str, module: Stack) -> None:
        """Add the rows of a stack of ours."""
        self.add_similarity(stack, position_vectors(module, self.tokens[stack], self.grids.get(stack)))
        for pattern, scores in rotary_similarity(module, self.tokens[stack]):
            self.add_rotation(stack, pattern, scores)
        self.add_bias(stack, module)

    def add_stock(self) -> None:
        """Add the rows of a model of transformers, as far as its modules are known."""
        most = max(self.tokens.values(), default=0)
        for path, vectors in table_vectors(self.model, most):
            stack = stack_of(self.model, path)
            self.add_similarity(stack, vectors[: self.tokens[stack]])
        for path, layer_type, scores in stock_rotary_similarity(self.model, most):
            self.add_rotation(stack_of(self.model, path), layer_type, scores)
        for path, module in self.model.named_modules():
            if hasattr(module, "compute_bias") and hasattr(module, "relative_attention_bias"):
                self.add_bias(stack_of(self.model, path), module)

    def add_similarity(self, stack: str, vectors: Tensor | None) -> None:
        """Add the similarity of the vectors of positions, and its mean by distance where they have places."""
        if vectors is None:
            return
        similarity = cosine_similarity(vectors)
        self.table.similarity[stack] = similarity
        places = places_of(self.model, stack, len(vectors), self.batch, self.grids)
        if places is not None:
            among = similarity[places.prefix :, places.prefix :]
            for distance, value in by_distance(among, places.places):
                self.table.add("position_similarity", stack, value, distance=distance)

    def add_rotation(self, stack: str, pattern: str | None, scores: Tensor) -> None:
        """Add the expected score by distance; `pattern` are the layers that have a rotation of their own."""
        for distance, value in enumerate(scores.tolist()):
            name = stack if pattern is None else f"{stack} ({pattern})"
            self.table.add("position_similarity", name, value, distance=distance)

    def add_bias(self, stack: str, module: Any) -> None:
        """Add the bias of scores of each head by distance."""
        for distance, values in position_bias(module, self.tokens[stack]):
            for head, value in enumerate(values.tolist()):
                self.table.add("position_bias", stack, value, head=head, distance=distance)
