"""Places of tokens, and the similarity of positions: of their vectors, or of rotated scores by distance.

Shapes: T positions, C coordinates of a place, 1 in a text and 2 in an image, D hidden_size, H heads, K head_dim.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os.path import commonprefix
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from qkv.modeling.position.hooks import Embedded, apply_rotation
from qkv.modeling.stack import Stack
from qkv.scripts.attention.capture import hooked, model_around
from qkv.scripts.attention.layers import attention_layers
from qkv.scripts.probes.table import ProbeTable

Grid = tuple[int, int]
# Tokens in front of the patches of an image: of a class, of distillation, registers.
MOST_PREFIX_TOKENS = 8
# Tables of positions in models of transformers, by the last part of their path.
TABLE = re.compile(r"(?:^|\.)(wpe|pos_embed|position_embeddings?|embed_positions)(\.weight)?$")
# The stack, a type of its layers or None, and vectors (T, D) or the expected score by distance (T,).
Encodings = Iterator[tuple[str, str | None, Tensor]]


class Places(NamedTuple):
    """Places (T, C) of the tokens of a stack after some without a place, as a class token."""

    prefix: int
    places: Tensor


@contextmanager
def recorded_grids(model: nn.Module) -> Iterator[dict[str, Grid]]:
    """Record, by stack, the grid of patches that each of our stacks makes of its images."""
    grids: dict[str, Grid] = {}

    def record(stack: str, embedded: Any) -> None:
        if getattr(embedded, "grid", None) is not None:
            grids[stack] = embedded.grid

    stacks = {stack_of(model, path): each for path, each in model.named_modules() if isinstance(each, Stack)}
    with hooked({each.embed_tokens: lambda *run, name=name: record(name, run[2]) for name, each in stacks.items()}):
        yield grids


def stack_of(model: nn.Module, path: str) -> str:
    """Return the stack, as `capture_attention` names it, of the self-attention nearest to a path."""
    layers = attention_layers(model)
    own = [layer for layer in layers if layer.stack != "cross"] or layers
    return max(own, key=lambda layer: len(commonprefix([path.split("."), layer.path.split(".")]))).stack


def places_of(
    model: nn.Module, stack: str, tokens: int, batch: Mapping[str, Any], grids: Mapping[str, Grid]
) -> Places | None:
    """Return the places of the tokens of a stack, or None where they have no order, as object queries.

    The grid of an image is recorded of our stacks; of transformers' models it follows from the size of a patch, and is
    unknown behind a backbone.
    """
    owner = model_around(model, next(layer.path for layer in attention_layers(model) if layer.stack == stack))
    grid = grids.get(stack)
    if grid is None and owner.main_input_name not in ("pixel_values", "encoder_hidden_states"):
        return Places(0, torch.arange(tokens)[:, None])
    images, size = batch.get("pixel_values"), getattr(owner.config, "patch_size", None)
    if grid is None and owner.main_input_name == "pixel_values" and images is not None and size is not None:
        height, width = (size, size) if isinstance(size, int) else size
        grid = images.shape[-2] // height, images.shape[-1] // width
    prefix = -1 if grid is None else tokens - grid[0] * grid[1]
    if grid is None or not 0 <= prefix <= MOST_PREFIX_TOKENS:
        return None
    return Places(prefix, torch.cartesian_prod(*map(torch.arange, grid)))


@torch.no_grad()
def add_positions(
    table: ProbeTable, model: nn.Module, batch: Mapping[str, Any], tokens: Mapping[str, int], grids: Mapping[str, Grid]
) -> None:
    """Add the similarity of positions by distance of the stacks of a model.

    `tokens` are the numbers of tokens of the stacks in a forward of the batch, `grids` those of its images.

    Source: Wang & Chen 2020, What Do Position Embeddings Learn?, §4, https://arxiv.org/abs/2010.04903; images:
        Dosovitskiy et al. 2021, §4.5, figure 7, https://arxiv.org/abs/2010.11929
    """
    for stack, layers, values in [*own_encodings(model, tokens, grids)] or stock_encodings(model, tokens):
        means = list(enumerate(values.tolist())) if values.ndim == 1 else []
        if values.ndim == 2:
            unit = F.normalize(values.float(), dim=-1)
            table.similarity[stack] = unit @ unit.T
            if (places := places_of(model, stack, len(values), batch, grids)) is not None:
                means = by_distance(table.similarity[stack][places.prefix :, places.prefix :], places.places)
        for distance, value in means:
            name = stack if layers is None else f"{stack} ({layers})"
            table.add("position_similarity", name, value, distance=distance)


def by_distance(similarity: Tensor, places: Tensor) -> list[tuple[int, float]]:
    """Average over all pairs at the same distance, Euclidean and rounded: (T, T), (T, C) -> (distance, mean)."""
    places = places.float().to(similarity.device)
    distances = torch.cdist(places, places, compute_mode="donot_use_mm_for_euclid_dist").round().long().flatten()
    counts, sums = distances.bincount(), distances.bincount(similarity.flatten())
    return [(index, (sums[index] / counts[index]).item()) for index in counts.nonzero()[:, 0].tolist()]


def own_encodings(model: nn.Module, tokens: Mapping[str, int], grids: Mapping[str, Grid]) -> Encodings:
    """Yield the encodings of our stacks."""
    for path, module in model.named_modules():
        stack = stack_of(model, path) if isinstance(module, Stack) else None
        if stack is not None and stack in tokens:
            vectors = position_vectors(module, tokens[stack], grids.get(stack))
            if vectors is not None:
                yield stack, None, vectors
            for pattern, scores in rotary_similarity(module, tokens[stack]):
                yield stack, pattern, scores


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


def stock_encodings(model: nn.Module, tokens: Mapping[str, int]) -> Encodings:
    """Yield the encodings of a model of transformers, as far as its modules are known."""
    for path, parameter in model.named_parameters():
        if TABLE.search(path) and (stack := stack_of(model, path)) in tokens:
            module: Any = model.get_submodule(path.rpartition(".")[0])
            is_padded = type(module) is nn.Embedding and module.padding_idx is not None
            first = module.padding_idx + 1 if is_padded else getattr(module, "offset", 0)
            rows = parameter[0] if parameter.ndim == 3 else parameter
            yield stack, None, rows[first : first + tokens[stack]]
    for path, module in model.named_modules():
        config: Any = getattr(module, "config", None)
        if not type(module).__name__.endswith("RotaryEmbedding") or config is None:
            continue
        if (stack := stack_of(model, path)) not in tokens:
            continue
        like = next(model.parameters()).new_zeros(())
        positions = torch.arange(tokens[stack], device=like.device)[None]
        for layers in sorted(set(getattr(module, "layer_types", None) or [])) or (None,):
            cosines = module(like.float(), positions, *([layers] if layers else []))[0][0]
            width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
            scores = cosines @ cosines[0] + (width - cosines.shape[-1])
            yield stack, layers, scores / scores[0]
