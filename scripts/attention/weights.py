"""Rows of attention weights, computed again from queries and keys for the heads and queries that are asked for.

Shapes: B batch, T queries, S keys, H heads, G key-value heads, K head_dim, D hidden_size; h heads and q queries asked
for; documents packed in a row have their own T and S.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

# Numbers of scores that are computed at a time: they stay in a cache.
SCORES = 2**20


@dataclass(frozen=True)
class AttentionCall:
    """The inputs of an attention function: (B, H, T, K), 2 x (B, G, S, K), its mask and all that changes scores.

    `is_causal` holds where no mask means that a query sees the keys up to its own place.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Any
    scaling: float
    is_causal: bool
    position_bias: Tensor | None = None
    rows_bias: Tensor | None = None
    softcap: float | None = None
    sinks: Tensor | None = None

    @classmethod
    def of(cls, module: nn.Module, *given: Any, implementation: str, **options: Any) -> "AttentionCall":
        """Read the arguments with which transformers calls an attention function."""
        query, key, value, mask = (*given, options.pop("attention_mask", None))[:4]
        causal = options.get("is_causal")
        causal = getattr(module, "is_causal", True) if causal is None else causal
        scaling = options.get("scaling")
        return cls(
            query.detach(),
            key.detach(),
            value.detach(),
            mask,
            query.shape[-1] ** -0.5 if scaling is None else scaling,
            bool(causal) and implementation != "eager" and query.shape[2] > 1,
            *(options.get(name) for name in ("position_bias", "rows_bias", "softcap", "s_aux")),
        )

    def keys_of(self, heads: Tensor, states: Tensor) -> Tensor:
        """Return the keys or values that some heads read: (B, G, S, K) -> (B, h, S, K)."""
        return states.index_select(1, heads // (self.query.shape[1] // states.shape[1]))


class Part(NamedTuple):
    """The part of a call inside of which queries read keys: all of it, or one of the documents packed in a row.

    `own` are the places of the queries asked for in the part, which lie at `queries` in the row of all that the forward
    computes; their weights go to `rows` of those asked for, at `columns`, in the row `batch` of the caller's batch,
    which is None where the part has all rows.
    """

    call: AttentionCall
    own: Tensor
    queries: slice
    batch: int | None
    rows: Tensor
    columns: Tensor


class Layout(NamedTuple):
    """The parts of a call, and the shape (B, T, S) of the batch as the caller gave it."""

    parts: list[Part]
    shape: tuple[int, int, int]
    queries: Tensor

    def assemble(self, compute: Callable[[Part], Tensor], empty: float = 0.0) -> Tensor:
        """Compute each part (B or 1, h, q, S) and put it where the caller has it: (B, h, q, S)."""
        if len(self.parts) == 1 and self.parts[0].batch is None:
            return compute(self.parts[0])
        whole: Tensor | None = None
        for part in self.parts:
            rows = compute(part)
            if whole is None:
                whole = rows.new_full((self.shape[0], rows.shape[1], len(self.queries), self.shape[2]), empty)
            whole[part.batch, :, part.rows[:, None], part.columns] = rows[0].to(whole.dtype)
        assert whole is not None  # a batch has a document
        return whole


def call_length(call: AttentionCall) -> int:
    """Return the number of queries in a row as the caller gave it, padding included."""
    return call.mask.queries.shape[1] if hasattr(call.mask, "masks") else call.query.shape[2]


def layout_of(call: AttentionCall, queries: Tensor) -> Layout:
    """Divide a call into the parts in which its queries read: the documents of a packed row, or all at once."""
    if not hasattr(call.mask, "masks"):
        shape = (call.query.shape[0], call.query.shape[2], call.key.shape[2])
        columns = torch.arange(call.key.shape[2], device=call.key.device)
        all_rows = torch.arange(len(queries), device=queries.device)
        return Layout([Part(call, queries, slice(None), None, all_rows, columns)], shape, queries)
    documents, memory = call.mask.queries, call.mask.keys
    shape = (*documents.shape, memory.shape[1])
    return Layout(list(document_parts(call, queries)), shape, queries)


def document_parts(call: AttentionCall, queries: Tensor) -> Iterator[Part]:
    """Yield a part for each document of a packed row."""
    documents, memory = call.mask.queries, call.mask.keys
    places = documents.index.split(documents.lengths), memory.index.split(memory.lengths)
    first, first_key = 0, 0
    for index, key_index, mask in zip(*places, call.mask.masks, strict=True):
        inside, keys = slice(first, first + len(index)), slice(first_key, first_key + len(key_index))
        rows, own = (queries[:, None] == index % documents.shape[1]).nonzero().unbind(1)
        bias = call.position_bias
        bias = None if bias is None else bias[:, :, : len(index), : len(key_index)]
        heads = call.query[:, :, inside], call.key[:, :, keys], call.value[:, :, keys]
        part = AttentionCall(*heads, mask, call.scaling, call.is_causal, bias)
        batch = int(index[0]) // documents.shape[1]
        yield Part(part, own, inside, batch, rows, key_index % memory.shape[1])
        first, first_key = inside.stop, keys.stop


def attention_scores(call: AttentionCall, heads: Tensor, places: Tensor) -> Tensor:
    """Return the scores before softmax, with biases, minus infinity where a query does not see a key: (B, h, q, S).

    Source: Vaswani et al. 2017, §3.2.1, eq. 1, https://arxiv.org/abs/1706.03762; softcap: Gemma Team 2024, Gemma 2, §2,
        https://arxiv.org/abs/2408.00118
    """
    query = call.query.index_select(1, heads).index_select(2, places)
    scores = query @ call.keys_of(heads, call.key).transpose(-1, -2) * call.scaling
    if call.softcap is not None:
        scores = torch.tanh(scores / call.softcap) * call.softcap
    bias = row_bias(call, heads, places)
    if bias is not None:
        scores = scores + bias
    seen, added = visible_keys(call, heads, places)
    if added is not None:
        scores = scores + added.to(scores.dtype)
    return scores if seen is None else scores.masked_fill(~seen, -torch.inf)


def row_bias(call: AttentionCall, heads: Tensor, places: Tensor) -> Tensor | None:
    """Return the bias of the scores of some rows: (B or 1, h or 1, q or 1, S)."""
    if call.position_bias is None:
        return None
    if hasattr(call.mask, "rows_of"):
        return window_bias(call, heads, places)
    return rows_of_pairs(call.position_bias, heads, places, call.key.shape[2])


def rows_of_pairs(pairs: Tensor, heads: Tensor, places: Tensor, keys: int) -> Tensor:
    """Return some heads and rows of what is known of pairs; a dimension of 1 stays: (B, H, T, S) -> (B, h, q, S)."""
    pairs = pairs if pairs.shape[1] == 1 else pairs.index_select(1, heads)
    pairs = pairs if pairs.shape[2] == 1 else pairs.index_select(2, places)
    return pairs[..., :keys]


def window_bias(call: AttentionCall, heads: Tensor, places: Tensor) -> Tensor:
    """Put the bias of chunks (B * N or N or 1, H, C, W) in the rows of some queries: (B or 1, h, q, S).

    It is zero where a chunk has no key, which no query of it sees.
    """
    mask, bias, keys = call.mask, call.position_bias, call.key.shape[2]
    assert bias is not None  # the caller looked
    _, chunks, size, _ = mask.chunks.shape
    bias = bias.index_select(1, heads).expand(max(len(bias), chunks), -1, -1, -1).unflatten(0, (-1, chunks))
    # Chunks have every `step`-th query, and those of the first query's class come first.
    own_class, place = places % mask.step, places // mask.step
    at = own_class * (chunks // mask.step) + place // size
    rows = max(len(bias), len(mask.keys), len(mask.chunks))
    own = bias.transpose(2, 3)[:, at, place % size].expand(rows, -1, -1, -1)
    seen = mask.chunks[:, at, place % size].expand(rows, -1, -1) == 0
    columns = torch.where(seen, mask.keys[:, at].expand(rows, -1, -1).long() - mask.span.key, keys)
    dense = own.new_zeros(rows, len(places), len(heads), keys + 1)
    dense = dense.scatter(-1, columns[:, :, None].expand(-1, -1, len(heads), -1), own)[..., :keys].transpose(1, 2)
    return dense if call.rows_bias is None else with_rows_bias(dense, call, heads, mask.span.query + places)


def with_rows_bias(dense: Tensor, call: AttentionCall, heads: Tensor, wanted: Tensor) -> Tensor:
    """Exchange the bias of the queries that see all keys: (B or 1, h, q, S)."""
    own: Any = call.rows_bias
    rows, own = call.mask.rows, own.index_select(1, heads)
    count = max(len(dense), len(rows), len(own))
    dense, own, rows = dense.expand(count, -1, -1, -1).clone(), own.expand(count, -1, -1, -1), rows.expand(count, -1)
    for batch, query, row in (rows[:, None] == wanted[:, None]).nonzero().tolist():
        dense[batch, :, query] = own[batch, :, row]
    return dense


def visible_keys(call: AttentionCall, heads: Tensor, places: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Return which keys some queries see, None for all, and what a mask adds to scores besides: (B, h or 1, q, S)."""
    mask, keys = call.mask, call.key.shape[2]
    if mask is None:
        seen = torch.arange(keys, device=places.device)[None] <= places[:, None]
        return (seen if call.is_causal else None), None
    if hasattr(mask, "rows_of"):
        return mask.rows_of(places[None] + mask.span.query), None
    if hasattr(mask, "mask_mod"):
        index = [torch.arange(len(call.query), device=places.device), heads, places]
        index.append(torch.arange(keys, device=places.device))
        shaped = (each.view([-1 if axis == own else 1 for own in range(4)]) for axis, each in enumerate(index))
        return mask.mask_mod(*shaped), None
    mask = rows_of_pairs(mask, heads, places, keys)
    if mask.dtype == torch.bool:
        return mask, None
    # A finished mask may add more than what hides: the least number, or minus infinity.
    seen = mask > torch.finfo(mask.dtype).min / 2
    return seen, torch.where(seen, mask, 0)


def normalise(scores: Tensor, heads: Tensor, sinks: Tensor | None) -> Tensor:
    """Apply softmax in single precision at least; a query that sees nothing, as padding, has zeros.

    Source: sinks, scores that no key has: OpenAI 2025, gpt-oss, §2.3, https://arxiv.org/abs/2508.10925
    """
    precise = torch.promote_types(scores.dtype, torch.float32)
    keys = scores.shape[-1]
    if sinks is not None:
        own = sinks.detach().flatten().index_select(0, heads).view(1, -1, 1, 1).to(scores.dtype)
        scores = torch.cat((scores, own.expand(*scores.shape[:-1], 1)), dim=-1)
    weights = scores.softmax(-1, dtype=precise).to(scores.dtype)[..., :keys]
    return weights.nan_to_num_(nan=0.0)


def attention_weights(call: AttentionCall, heads: Tensor, places: Tensor) -> Tensor:
    """Return rows of attention weights, computed some at a time: (B, h, q, S)."""
    some = max(SCORES // (len(call.query) * len(heads) * call.key.shape[2]), 1)
    weights = call.query.new_empty(len(call.query), len(heads), len(places), call.key.shape[2])
    for start in range(0, len(places), some):
        own = places[start : start + some]
        weights[:, :, start : start + some] = normalise(attention_scores(call, heads, own), heads, call.sinks)
    return weights


def value_norms(value: Tensor, projection: Tensor, heads: Tensor) -> Tensor:
    """Return the length of each value after its head's part of the output projection.

    Source: Kobayashi et al. 2020, Attention is Not Only a Weight, §2.2 and appendix A,
        https://aclanthology.org/2020.emnlp-main.574
    Shapes: value (B, h, S, K), projection (H, K, D) -> (B, h, S)
    """
    parts = zip(value.unbind(1), projection.index_select(0, heads), strict=True)
    return torch.stack([(own @ part.to(own.dtype)).norm(dim=-1) for own, part in parts], dim=1)


def weight_gradients(part: Part, heads: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient of attention weights from that of what they mix: of A V it is that of the output times V^T.

    Shapes: gradient (B, T, H, K) -> (B, h, q, S)
    """
    own = gradient[:, part.queries].transpose(1, 2).index_select(1, heads).index_select(2, part.own)
    return own @ part.call.keys_of(heads, part.call.value).transpose(-1, -2)


def output_projection(module: nn.Module, parent: nn.Module, width: int) -> Tensor:
    """Return the matrix by which an attention layer projects its heads: (H * K, D).

    It is what the projection makes of unit vectors, so that adapters and quantised weights count. ValueError where the
    layer has none by a name that is known.
    """
    inside = ("o_proj", "out_proj", "o", "c_proj", "out_lin", "Wo", "dense", "proj", "projection")
    projection = next((child for name in inside if isinstance(child := getattr(module, name, None), nn.Module)), None)
    output = getattr(parent, "output", None)
    projection = getattr(output, "dense", None) if projection is None else projection
    if projection is None:
        raise ValueError(
            f"also=['norms'] needs the output projection of {type(module).__name__}, which has none of "
            f"{', '.join(inside)}; leave norms out"
        )
    like = next(projection.parameters())
    unit = torch.eye(width, dtype=like.dtype if like.is_floating_point() else torch.float32, device=like.device)
    return projection(unit) - projection(torch.zeros_like(unit[:1]))
