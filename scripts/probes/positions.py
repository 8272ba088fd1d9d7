"""Similarity of positions: of the vectors that tell them apart, or how a score changes with their distance.

Shapes: T positions, D hidden_size, H heads, K head_dim.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from qkv.modeling.position.hooks import Embedded, apply_rotation
from qkv.modeling.stack import Stack
from qkv.scripts.probes.places import Grid, places_of, stack_of
from qkv.scripts.probes.table import ProbeTable

# Tables of positions in models of transformers, by the last part of their path.
TABLE = re.compile(r"(?:^|\.)(wpe|pos_embed|position_embeddings?|embed_positions)(\.weight)?$")
# The stack, the name of the rows, and vectors (T, D) or the expected score by distance (T,).
Encodings = Iterator[tuple[str, str, Tensor]]


@torch.no_grad()
def add_positions(
    table: ProbeTable, model: nn.Module, batch: Mapping[str, Any], tokens: Mapping[str, int], grids: Mapping[str, Grid]
) -> None:
    """Add the similarity of positions by distance of the stacks of a model.

    `tokens` are the numbers of tokens of the stacks in a forward of the batch, `grids` those of its images.
    """
    for stack, name, values in [*own_encodings(model, tokens, grids)] or stock_encodings(model, tokens):
        if values.ndim == 2:
            add_similarity(table, stack, values, places_of(model, stack, len(values), batch, grids))
            continue
        for distance, value in enumerate(values.tolist()):
            table.add("position_similarity", name, value, distance=distance)


def own_encodings(model: nn.Module, tokens: Mapping[str, int], grids: Mapping[str, Grid]) -> Encodings:
    """Yield the encodings of our stacks."""
    for path, module in model.named_modules():
        stack = stack_of(model, path) if isinstance(module, Stack) else None
        if stack in tokens:
            vectors = position_vectors(module, tokens[stack], grids.get(stack))
            if vectors is not None:
                yield stack, stack, vectors
            for pattern, scores in rotary_similarity(module, tokens[stack]):
                yield stack, stack if pattern is None else f"{stack} ({pattern})", scores


def stock_encodings(model: nn.Module, tokens: Mapping[str, int]) -> Encodings:
    """Yield the encodings of a model of transformers, as far as its modules are known."""
    most = max(tokens.values(), default=0)
    for path, rows in table_vectors(model, most):
        stack = stack_of(model, path)
        yield stack, stack, rows[: tokens[stack]]
    for path, layer_type, scores in stock_rotary_similarity(model, most):
        stack = stack_of(model, path)
        yield stack, stack if layer_type is None else f"{stack} ({layer_type})", scores


def add_similarity(table: ProbeTable, stack: str, vectors: Tensor, places: Any) -> None:
    """Add the cosine similarity of each pair of positions (T, D), and its mean by distance where they have places.

    Source: Wang & Chen 2020, What Do Position Embeddings Learn?, §4, https://arxiv.org/abs/2010.04903; images:
        Dosovitskiy et al. 2021, §4.5, figure 7, https://arxiv.org/abs/2010.11929
    """
    unit = F.normalize(vectors.float(), dim=-1)
    table.similarity[stack] = unit @ unit.T
    if places is not None:
        among = table.similarity[stack][places.prefix :, places.prefix :]
        for distance, value in by_distance(among, places.places):
            table.add("position_similarity", stack, value, distance=distance)


def by_distance(similarity: Tensor, places: Tensor) -> list[tuple[int, float]]:
    """Average over all pairs at the same distance, Euclidean and rounded: (T, T), (T, C) -> (distance, mean)."""
    places = places.float().to(similarity.device)
    distances = torch.cdist(places, places, compute_mode="donot_use_mm_for_euclid_dist").round().long()
    sums = torch.zeros(int(distances.max()) + 1, device=similarity.device)
    counts = sums.index_add(0, distances.flatten(), torch.ones_like(similarity).flatten())
    sums = sums.index_add(0, distances.flatten(), similarity.flatten())
    return [(index, (sums[index] / counts[index]).item()) for index in counts.nonzero()[:, 0].tolist()]


def position_vectors(module: nn.Module, tokens: int, grid: Grid | None) -> Tensor | None:
    """Return the vectors that a stack of ours adds for its positions: (T, D), None where it adds none.

    They are added to the input, or by detectors to the inputs of queries and keys.
    """
    position: Any = module.position
    kind, device = position.config.position, next(module.parameters()).device
    hidden, vectors = torch.zeros(1, tokens, position.config.position_width, device=device), None
    if kind != "object_queries" and grid is not None:
        vectors = position.query_key(Embedded(hidden[:, : grid[0] * grid[1]], None, grid))
    if vectors is None and not kind.startswith("sinusoidal_2d"):
        vectors = position.embed(Embedded(hidden), torch.arange(tokens, device=device)[None])
    return None if vectors is None or not vectors.any() else vectors[0]


def table_vectors(model: nn.Module, tokens: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the path and the rows (T, D) of each table of positions in a model of transformers, from position 0."""
    for path, parameter in model.named_parameters():
        if TABLE.search(path):
            module: Any = model.get_submodule(path.rpartition(".")[0])
            is_padded = type(module) is nn.Embedding and module.padding_idx is not None
            first = module.padding_idx + 1 if is_padded else getattr(module, "offset", 0)
            yield path, (parameter[0] if parameter.ndim == 3 else parameter)[first : first + tokens]


def rotary_similarity(module: nn.Module, tokens: int) -> Iterator[tuple[str | None, Tensor]]:
    """Yield, for each rotation of a stack, the expected score of a vector with itself by distance: pattern, (T,).

    It is the mean over unit vectors of queries and keys that are equal before their rotation, over that at distance 0:
    of rope the mean of cos(distance x frequency), and 1 for components that do not rotate.

    Source: Su et al. 2021, RoFormer, §3.4.3, https://arxiv.org/abs/2104.09864
    """
    position: Any = module.position
    config, device = position.config, next(module.parameters()).device
    positions = torch.arange(tokens, device=device)[None]
    for pattern in dict.fromkeys(config.layer_patterns) if getattr(config, "rope_by_pattern", False) else (None,):
        rotation = position.rotation(positions, torch.float32, pattern)
        if rotation is not None:
            unit = torch.eye(config.head_dim, device=device)[None, :, None].expand(-1, -1, tokens, -1)
            query, key = apply_rotation(unit, unit, rotation)
            scores = (query * key[:, :, :1]).sum(-1).mean(1)[0]
            yield pattern, scores / scores[0]


def stock_rotary_similarity(model: nn.Module, tokens: int) -> Iterator[tuple[str, str | None, Tensor]]:
    """Yield the same of a model of transformers: the path of the rotation, its type of layers, (T,)."""
    for path, module in model.named_modules():
        config: Any = getattr(module, "config", None)
        if not type(module).__name__.endswith("RotaryEmbedding") or config is None:
            continue
        device = next(model.parameters()).device
        like, positions = torch.zeros((), device=device), torch.arange(tokens, device=device)[None]
        for layer_type in sorted(set(getattr(module, "layer_types", None) or [])) or (None,):
            cosines = module(like, positions, *([layer_type] if layer_type else []))[0][0]
            width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
            scores = cosines @ cosines[0] + (width - cosines.shape[-1])
            yield path, layer_type, scores / scores[0]
