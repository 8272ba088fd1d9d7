"""A stack as slow loops: positions, patterns and kernels from `reference`, everything else from the model's own modules.

One row is computed at a time, without its padding, so that no mask is needed but that of the pattern.

Shapes: T tokens, S tokens of memory, D hidden_size, H heads, G key-value heads, K head_dim.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

import reference
from qkv.configuration.axes import DISENTANGLED_POSITIONS, ROTARY_POSITIONS
from qkv.modeling.position.hooks import Embedded

Turn = Callable[[Tensor], Tensor]


class Row(NamedTuple):
    """The tokens of one row: their positions (1, T), and the rows and columns of an image, or None."""

    places: Tensor
    grid: tuple[int, int] | None


class Memory(NamedTuple):
    """What cross-attention reads of one row: (1, S, D), and what is added to the input of its keys, or zeros."""

    hidden: Tensor
    added: Tensor


def tabled(name: str, stack: Any, row: Row) -> Tensor:
    table = getattr(reference, f"{name}_table")(row.places.shape[1], stack.config.position_width)
    return reference.learned_positions(row.places, table)


def in_rows_and_columns(stack: Any, row: Row) -> Tensor:
    assert row.grid is not None
    return reference.image_positions(torch.ones(row.grid, dtype=torch.bool), stack.config.hidden_size)[None]


def by_buckets(stack: Any, table: Any, places: Tensor) -> Tensor:
    furthest = stack.config.relative_attention_max_distance
    return reference.t5_bias(table.weight, places, places, not stack.config.causal, furthest)


def learned(stack: Any, row: Row) -> Tensor:
    return reference.learned_positions(row.places, stack.position.table.weight)


def by_vectors(stack: Any, places: Tensor, module: Any, query: Tensor, key: Tensor) -> Tensor:
    """Scores of one layer's queries and keys with vectors of their distances."""
    config, vectors = stack.config, stack.position.norm(stack.position.distances.weight)[None]
    own = "" if config.share_att_key else "pos_"
    counts = {"q": config.num_attention_heads, "k": config.num_key_value_heads}
    heads = [
        reference.split_heads(project(module, f"{own}{name}_proj", vectors), count) for name, count in counts.items()
    ]
    if config.share_att_key and module.q_norm is not None:
        heads = [norm(each) for norm, each in zip((module.q_norm, module.k_norm), heads, strict=True)]
    scale = (3 * config.head_dim) ** -0.5
    furthest = config.relative_attention_max_distance
    return scale * reference.disentangled_bias(query, key, *heads, places, places, furthest)


# What is added to the stack's input, and to the input of queries and keys in every layer: (1, T, D).
INPUTS: dict[str, Callable[[Any, Row], Tensor]] = {
    "learned": learned,
    "grid": lambda stack, row: reference.grid_positions(
        row.places,
        stack.position.table.weight,
        stack.config.text_length,
        stack.config.grid_rows,
        stack.config.grid_columns,
    ),
    **dict.fromkeys(("learned_and_t5", "learned_and_disentangled"), learned),
    **{name: partial(tabled, name) for name in ("sinusoidal", "sinusoidal_concat", "sinusoidal_t2t")},
    "sinusoidal_2d_and_input": in_rows_and_columns,
}
QUERY_KEYS: dict[str, Callable[[Any, Row], Tensor]] = {
    "sinusoidal_2d": in_rows_and_columns,
    "sinusoidal_2d_and_input": in_rows_and_columns,
    "object_queries": lambda stack, row: stack.position.table.weight[None],
}
BIASES: dict[str, Callable[[Any, Tensor], Any]] = {
    "alibi": lambda stack, places: reference.alibi_bias(stack.config.num_attention_heads, places, places),
    "t5": lambda stack, places: by_buckets(stack, stack.position.table, places),
    "learned_and_t5": lambda stack, places: by_buckets(stack, stack.position.relative.table, places),
    **dict.fromkeys(DISENTANGLED_POSITIONS, lambda stack, places: partial(by_vectors, stack, places)),
    "kerple": lambda stack, places: reference.kerple_bias(stack.position.log_r1, stack.position.log_r2, places, places),
}
PATTERNS: dict[str, Callable[[Any], Callable[[int, int], bool]]] = {
    "full": lambda config: reference.full,
    "sliding": lambda config: partial(reference.sliding, window=config.sliding_window),
    "dilated": lambda config: partial(reference.dilated, window=config.sliding_window, dilation=config.dilation),
    "block_sparse": lambda config: partial(reference.block_sparse, block_size=config.block_size),
    "random": lambda config: partial(
        reference.random,
        block_size=config.block_size,
        count=config.num_random_blocks,
        seed=config.random_blocks_seed,
        causal=config.causal,
    ),
    "strided": lambda config: partial(reference.strided, stride=config.block_size),
    "fixed": lambda config: partial(reference.fixed, stride=config.block_size, columns=config.fixed_columns),
    "row": lambda config: partial(reference.row, **grid_of(config)),
    "column": lambda config: partial(reference.column, **grid_of(config)),
    "convolutional": lambda config: partial(reference.convolutional, **grid_of(config), kernel=config.grid_kernel),
}


def grid_of(config: Any) -> dict[str, int]:
    return {"text_length": config.text_length, "columns": config.grid_columns}


def visible_pairs(config: Any, pattern: str) -> Callable[[int, int, int], bool]:
    """Keys that the queries of a stack see in layers of a pattern: visible(b, t, s)."""
    causal = [reference.causal] if config.causal else []
    return reference.visibility(PATTERNS[pattern](config), *causal)


def turns(config: Any, layer: int, pattern: str, row: Row) -> tuple[Turn, Turn]:
    """Rotations of queries and keys in a layer: 2 x ((1, H, T, K) -> same)."""
    if config.layer_positions[layer] not in ROTARY_POSITIONS:
        return (lambda heads: heads), (lambda heads: heads)
    rope = config.rope_of(pattern)
    if config.layer_positions[layer] == "rope_2d":
        halves = reference.rope_frequencies(config.head_dim // 2, rope["rope_theta"])
        return (partial(reference.rotate_patches, grid=row.grid, frequencies=halves),) * 2
    rotated = int(config.head_dim * rope.get("partial_rotary_factor", 1))
    frequencies = reference.rope_frequencies(rotated, rope["rope_theta"])

    def turn(heads: Tensor, sign: int) -> Tensor:
        turned = reference.rotate_heads(heads, row.places, frequencies)
        return (
            reference.xpos_scale(turned, row.places, rotated, sign)
            if config.layer_positions[layer] == "xpos"
            else turned
        )

    return partial(turn, sign=1), partial(turn, sign=-1)


def project(module: Any, name: str, hidden: Tensor) -> Tensor:
    """One projection: (1, T, D) -> (1, T, H * K)."""
    linear = getattr(module, name)
    return reference.linear(hidden, linear.weight, linear.bias)


def softmax(module: Any, hidden: Tensor, heads: list[Tensor], turned: tuple[Turn, Turn], **score: Any) -> Tensor:
    query, key, value = heads
    last = module.config.query_key_norm == "head_after_rotation"
    query, key = (
        norm(turn(each)) if last else turn(each if norm is None else norm(each))
        for turn, norm, each in zip(turned, (module.q_norm, module.k_norm), (query, key), strict=True)
    )
    if callable(score["bias"]):
        score |= {"bias": score["bias"](module, query, key), "scale": (3 * module.config.head_dim) ** -0.5}
    return reference.attention(query, key, value, softcap=module.config.attn_logit_softcapping, **score)[0]


def linear(module: Any, hidden: Tensor, heads: list[Tensor], turned: tuple[Turn, Turn], **score: Any) -> Tensor:
    assert score.pop("bias") is None
    return reference.linear_attention(*heads, module.config.feature_map, score["visible"], *turned)[0]


def gated_delta(module: Any, hidden: Tensor, heads: list[Tensor], turned: tuple[Turn, Turn], **given: Any) -> Tensor:
    """Token by token; every earlier token is visible."""
    query, key, value = map(reference.silu, heads)
    query, key = (
        turn(each_vector(reference.unit_length, each)) for turn, each in zip(turned, (query, key), strict=True)
    )
    step = torch.log(1 + torch.exp(module.decay_proj(hidden) + module.decay_bias))
    decay = torch.exp(-torch.exp(module.decay_log) * step).transpose(1, 2)
    rate = reference.sigmoid(module.rate_proj(hidden)).transpose(1, 2)
    rows = {name: given[name] for name in ("keep", "documents") if name in given}
    mixed = reference.gated_delta_rule(query, key, value, decay, rate, **rows)
    return reference.rms_norm(mixed, module.out_norm.weight, module.out_norm.eps)


def each_vector(function: Callable[[Tensor], Tensor], heads: Tensor) -> Tensor:
    return torch.stack([function(vector) for vector in heads.flatten(0, -2)]).view(heads.shape)


KERNELS: dict[str, Callable[..., Tensor]] = {"softmax": softmax, "linear": linear, "gated_delta": gated_delta}


def attend(module: Any, inputs: tuple[Tensor, Tensor, Tensor], turned: tuple[Turn, Turn], **score: Any) -> Tensor:
    """Project what queries, keys and values are made of, mix by the kernel, project back: 3 x (1, T, D) -> (1, T, D)."""
    groups = (module.config.num_attention_heads, *2 * [module.config.num_key_value_heads])
    names = ("q_proj", "k_proj", "v_proj")
    heads = [
        reference.split_heads(project(module, name, given), count)
        for name, given, count in zip(names, inputs, groups, strict=True)
    ]
    mixed = reference.merge_heads(KERNELS[module.config.kernel](module, inputs[2], heads, turned, **score))
    gate = None if module.g_proj is None else (module.g_proj.weight, module.g_proj.bias)
    return project(module, "o_proj", reference.gate_values(mixed, inputs[0], gate))


def run_slowly(stack: Any, given: Tensor, memory: Memory | None = None) -> Tensor:
    """Run a stack on the input of one row without padding: -> (1, T, D)."""
    config, embedded = stack.config, stack.embed_tokens(given)
    hidden, grid = (embedded.hidden, embedded.grid) if isinstance(embedded, Embedded) else (embedded, None)
    row, hidden = Row(torch.arange(hidden.shape[1])[None], grid), stack.project_in(hidden)
    if config.position_word in INPUTS:
        hidden = hidden + INPUTS[config.position_word](stack, row)
    hidden = stack.embed_projection(stack.embed_norm(hidden) if config.embedding_norm else hidden)
    position = config.position_word
    added = QUERY_KEYS[position](stack, row) if position in QUERY_KEYS else torch.zeros_like(hidden)
    bias = BIASES[position](stack, row.places) if position in BIASES else None
    for index, (layer, pattern) in enumerate(zip(stack.layers, config.layer_patterns, strict=True)):
        biased = config.layer_positions[index] in BIASES
        score = {"visible": visible_pairs(config, pattern), "bias": bias if biased else None}
        before, read = hidden, layer.self_attn_residual.input(hidden)
        first = read
        branch = attend(
            layer.self_attn, (read + added, read + added, read), turns(config, index, pattern, row), **score
        )
        hidden = layer.self_attn_residual(hidden, branch)
        if memory is not None:
            read, unturned = layer.cross_attn_residual.input(hidden), (lambda heads: heads, lambda heads: heads)
            inputs = (read + added, memory.hidden + memory.added, memory.hidden)
            branch = attend(layer.cross_attn, inputs, unturned, visible=None, bias=None)
            hidden = layer.cross_attn_residual(hidden, branch)
        shared = config.parallel_residual == "shared_norm"
        widened = first if shared else layer.mlp_residual.input(before if config.parallel_residual else hidden)
        hidden = layer.mlp_residual(hidden, layer.mlp(widened))
    return stack.project_out(stack.norm(hidden) if config.final_norm else hidden)
