"""Similarity of positions: of the vectors that tell them apart, or how a score changes with their distance.

Shapes: T positions, D hidden_size, H heads, K head_dim.
"""

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from qkv.modeling.position.hooks import Embedded, apply_rotation
from qkv.modeling.stack import Stack
from qkv.scripts.probes.places import Grid

# Tables of positions in models of transformers, by the last part of their path.
TABLE = re.compile(r"(?:^|\.)(wpe|pos_embed|position_embeddings?|embed_positions)(\.weight)?$")


@torch.no_grad()
def position_vectors(module: nn.Module, tokens: int, grid: Grid | None) -> Tensor | None:
    """Return the vectors that a stack of ours adds for its positions: (T, D), None where it adds none.

    They are added to the input, or by detectors to what queries and keys are projected from.
    """
    position: Any = module.position
    device = next(module.parameters()).device
    count = tokens if grid is None else grid[0] * grid[1]
    width = position.config.position_width
    plain = Embedded(torch.zeros(1, tokens, width, device=device))
    vectors = None
    if position.config.position != "object_queries":
        vectors = position.query_key(Embedded(plain.hidden[:, :count], None, grid)) if grid is not None else None
    if vectors is None and not position.config.position.startswith("sinusoidal_2d"):
        vectors = position.embed(plain, torch.arange(tokens, device=device)[None])
    return None if vectors is None or not vectors.any() else vectors[0]


@torch.no_grad()
def table_vectors(model: nn.Module, tokens: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the path and the rows of each table of positions in a model of transformers: (T, D).

    Rows in front of the first position are left out.
    """
    for path, parameter in model.named_parameters():
        if TABLE.search(path):
            module: Any = model.get_submodule(path.rpartition(".")[0])
            table = parameter[0] if parameter.ndim == 3 else parameter
            first = getattr(module, "offset", 0)
            if type(module) is nn.Embedding and module.padding_idx is not None:
                first = module.padding_idx + 1
            yield path, table[first : first + tokens]


def cosine_similarity(vectors: Tensor) -> Tensor:
    """Compute the cosine similarity of each pair of positions: (T, D) -> (T, T).

    Source: Wang & Chen 2020, What Do Position Embeddings Learn?, §4, https://arxiv.org/abs/2010.04903; images:
        Dosovitskiy et al. 2021, §4.5, figure 7, https://arxiv.org/abs/2010.11929
    """
    unit = F.normalize(vectors.float(), dim=-1)
    return unit @ unit.T


def by_distance(similarity: Tensor, places: Tensor) -> list[tuple[int, float]]:
    """Average over all pairs at the same distance, Euclidean and rounded: (T, T), (T, C) -> (distance, mean)."""
    places = places.float().to(similarity.device)
    distances = torch.cdist(places, places, compute_mode="donot_use_mm_for_euclid_dist").round().long()
    sums = torch.zeros(int(distances.max()) + 1, device=similarity.device)
    counts = sums.index_add(0, distances.flatten(), torch.ones_like(similarity).flatten())
    sums = sums.index_add(0, distances.flatten(), similarity.flatten())
    return [(index, (sums[index] / counts[index]).item()) for index in counts.nonzero()[:, 0].tolist()]


@torch.no_grad()
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


@torch.no_grad()
def stock_rotary_similarity(model: nn.Module, tokens: int) -> Iterator[tuple[str, str | None, Tensor]]:
    """Yield the same of a model of transformers: the path of the rotation, its type of layers, (T,)."""
    for path, module in model.named_modules():
        config: Any = getattr(module, "config", None)
        if not type(module).__name__.endswith("RotaryEmbedding") or config is None:
            continue
        device = next(model.parameters()).device
        like, positions = torch.zeros((), device=device), torch.arange(tokens, device=device)[None]
        types = getattr(module, "layer_types", None)
        for layer_type in sorted(set(types)) if types else (None,):
            cosines = module(like, positions, *([layer_type] if layer_type else []))[0][0]
            width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
            scores = cosines @ cosines[0] + (width - cosines.shape[-1])
            yield path, layer_type, scores / scores[0]


@torch.no_grad()
def position_bias(module: nn.Module, tokens: int) -> list[tuple[int, Tensor]]:
    """Return what an encoding adds to scores at each distance, query minus key: (distance, (H,)); [] for none.

    A causal stack has no negative distances. Ours and transformers' T5 alike.

    Source: alibi: Press et al. 2022, §3, https://arxiv.org/abs/2108.12409; T5: Raffel et al. 2020, §2.1,
        https://arxiv.org/abs/1910.10683
    """
    own: Any = module
    if isinstance(module, Stack):
        positions = torch.arange(tokens, device=next(module.parameters()).device)[None]
        bias, causal = own.position.bias(positions, positions), own.position.config.causal
    else:
        bias, causal = own.compute_bias(tokens, tokens), own.is_decoder
    if bias is None:
        return []
    earlier = [(distance, bias[0, :, -1, tokens - 1 - distance]) for distance in range(tokens)]
    later = [] if causal else [(-distance, bias[0, :, 0, distance]) for distance in range(tokens - 1, 0, -1)]
    return [*later, *earlier]
