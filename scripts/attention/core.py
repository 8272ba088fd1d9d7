"""All that capture knows of the inside of qkv.modeling: how its attention is observed, its masks and its kernels.

Shapes: B batch, T queries, S keys, M global tokens, H heads, K head_dim; h heads and q queries asked for.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from qkv.modeling.kernels.linear import Features, group_features, map_features
from qkv.modeling.position.hooks import apply_rotation
from qkv.scripts.attention.layers import AttentionLayer
from qkv.scripts.attention.recorder import BACKENDS, TRACKER, Recorder
from qkv.scripts.attention.records import AttentionRecord
from qkv.scripts.attention.weights import AttentionCall, Layout, Part, attention_scores, attention_weights


@contextmanager
def hooked(hooks: Mapping[nn.Module, Callable[..., Any]]) -> Iterator[None]:
    """Call forward hooks in this context."""
    with ExitStack() as stack:
        for module, hook in hooks.items():
            stack.callback(module.register_forward_hook(hook).remove)
        yield


def unskipped(modules: Iterable[nn.Module]) -> Any:
    """Call `forward` of modules in this context: a hook turns off the steps and savings that go around it."""
    return hooked(dict.fromkeys(modules, lambda *_: None))


def models_around(model: nn.Module, path: str | None = None) -> list[nn.Module]:
    """Return the models in a model, or those around a path: hooked, a last layer computes all tokens."""
    inside = ((name, each) for name, each in model.named_modules() if isinstance(each, PreTrainedModel))
    return [each for name, each in inside if path is None or not name or path.startswith(f"{name}.")]


def is_observable(layer: AttentionLayer) -> bool:
    """Tell whether a layer is ours, or of a published copy."""
    return hasattr(type(layer.module), "observe") or layer.kind in RECORDERS


@contextmanager
def observed(recorder: Recorder, model: nn.Module) -> Iterator[None]:
    """Record a layer of ours, around the attention function, where its masks are still whole."""
    layer, module = recorder.layer, recorder.layer.module
    is_last = layer.number == recorder.captured.depths[layer.stack] - 1
    outer = vars(module).get("observe")

    def observe(attend: Any) -> Any:
        def attend_and_record(module: Any, *given: Any, **options: Any) -> Any:
            # Parts of a model of pairs are told their backend at each call; their masks are in the biases.
            backend = module.config._attn_implementation or BACKENDS[0]
            return recorder.attend(attend, backend, module, *given, **options)

        return attend_and_record

    with ExitStack() as stack:
        if hasattr(type(module), "observe"):
            inner = outer or type(module).observe
            module.observe = lambda attend: observe(inner(attend))
            stack.callback(setattr if outer else delattr, module, "observe", *([outer] if outer else []))
            stack.enter_context(unskipped([module, *(models_around(model, layer.path) if is_last else [])]))
        if isinstance(recorder, ForwardRecorder):
            stack.callback(module.register_forward_hook(recorder.after_forward, with_kwargs=True).remove)
        yield


@dataclass(frozen=True)
class WindowCall(AttentionCall):
    """A call whose mask holds the keys that each chunk of queries may see."""

    rows_bias: Tensor | None = None

    def visible_keys(self, heads: Tensor, places: Tensor) -> tuple[Tensor | None, Tensor | None]:
        return self.mask.rows_of(places[None] + self.mask.span.query), None

    def bias_rows(self, heads: Tensor, places: Tensor) -> Tensor | None:
        """Put the bias of chunks (B * N or N or 1, H, C, W) in the rows of some queries: (B or 1, h, q, S).

        It is zero where a chunk has no key, which none of its queries sees.
        """
        if self.position_bias is None:
            return None
        mask, keys = self.mask, self.key.shape[2]
        _, chunks, size, _ = mask.chunks.shape
        bias = self.position_bias.index_select(1, heads)
        bias = bias.expand(max(len(bias), chunks), -1, -1, -1).unflatten(0, (-1, chunks))
        # Chunks have every `step`-th query, and those of the first query's class come first.
        at = places % mask.step * (chunks // mask.step) + places // mask.step // size
        within = places // mask.step % size
        rows = max(len(bias), len(mask.keys), len(mask.chunks))
        own = bias.transpose(2, 3)[:, at, within].expand(rows, -1, -1, -1)
        seen = mask.chunks[:, at, within].expand(rows, -1, -1) == 0
        columns = torch.where(seen, mask.keys[:, at].expand(rows, -1, -1).long() - mask.span.key, keys)
        dense = own.new_zeros(rows, len(places), len(heads), keys + 1)
        dense = dense.scatter(-1, columns[:, :, None].expand(-1, -1, len(heads), -1), own)[..., :keys].transpose(1, 2)
        return dense if self.rows_bias is None else self.with_rows_bias(dense, heads, mask.span.query + places)

    def with_rows_bias(self, dense: Tensor, heads: Tensor, wanted: Tensor) -> Tensor:
        """Exchange the bias of the queries that see all keys: (B or 1, h, q, S)."""
        given: Any = self.rows_bias
        own, rows = given.index_select(1, heads), self.mask.rows
        count = max(len(dense), len(rows), len(own))
        own, rows = own.expand(count, -1, -1, -1), rows.expand(count, -1)
        dense = dense.expand(count, -1, -1, -1).clone()
        for batch, query, row in (rows[:, None] == wanted[:, None]).nonzero().tolist():
            dense[batch, :, query] = own[batch, :, row]
        return dense


def call_type(mask: Any) -> type[AttentionCall]:
    """Return the type of a call with a mask of ours, known by its fields: a published copy has classes of its own."""
    return WindowCall if hasattr(mask, "rows_of") else AttentionCall


class CoreRecorder(Recorder):
    """Record softmax attention of ours, also without padding and in chunks."""

    def read(self, module: nn.Module, *given: Any, backend: str, **options: Any) -> AttentionCall:
        call = call_type((*given, options.get("attention_mask"))[3]).of(module, *given, backend=backend, **options)
        return replace(call, rows_bias=options.get("rows_bias")) if isinstance(call, WindowCall) else call

    def count_queries(self, call: AttentionCall) -> int:
        return int(call.mask.queries.shape[1]) if hasattr(call.mask, "masks") else super().count_queries(call)

    def lay_out(self, call: AttentionCall, queries: Tensor) -> Layout:
        if not hasattr(call.mask, "masks"):
            return super().lay_out(call, queries)
        batch, _ = call.mask.queries.shape
        return Layout(list(document_parts(call, queries)), (batch, len(queries), call.mask.keys.shape[1]))


def document_parts(call: AttentionCall, queries: Tensor) -> Iterator[Part]:
    """Yield a part for each document of a packed row."""
    documents, memory, bias = call.mask.queries, call.mask.keys, call.position_bias
    places = documents.index.split(documents.lengths), memory.index.split(memory.lengths)
    first, first_key = 0, 0
    for index, key_index, mask in zip(*places, call.mask.masks, strict=True):
        inside, keys = slice(first, first + len(index)), slice(first_key, first_key + len(key_index))
        rows, own = (queries[:, None] == index % documents.shape[1]).nonzero().unbind(1)
        heads = call.query[:, :, inside], call.key[:, :, keys], call.value[:, :, keys]
        of_document = None if bias is None else bias[:, :, : len(index), : len(key_index)]
        part = call_type(mask)(*heads, mask, call.scaling, call.is_causal, of_document)
        batch = int(index[0]) // documents.shape[1]
        yield Part(part, own, inside, batch, rows, key_index % memory.shape[1])
        first, first_key = inside.stop, keys.stop


class ForwardRecorder(CoreRecorder):
    """Record a layer whose weights do not follow from the call of an attention function alone."""

    @torch.no_grad()
    def after_forward(self, module: Any, given: tuple[Any, ...], options: dict[str, Any], output: Any) -> None:
        """Read the arguments of a forward by name, and record it once, not in a backward pass."""
        if not TRACKER.is_bw:
            arguments = inspect.signature(type(module).forward).bind(module, *given, **options).arguments
            self.record_forward(module, arguments | arguments.pop("kwargs", {}), output)

    def record_forward(self, module: Any, given: dict[str, Any], output: Any) -> None:
        """Record a forward."""
        raise NotImplementedError


class AlignmentRecorder(ForwardRecorder):
    """Record the alignment of a recurrent decoder, which it always computes: (B, 1, T, S)."""

    def record_forward(self, module: Any, given: dict[str, Any], output: Any) -> None:
        weights = output[3]
        record = self.start(*weights.shape[1:3])
        record.weights = weights[:, record.heads][:, :, record.queries].detach()


class LinearRecorder(ForwardRecorder):
    """Record linear attention, which computes no weights."""

    def record_forward(self, module: Any, given: dict[str, Any], output: Any) -> None:
        features = linear_features(module, given)
        _, groups, shared, count, _ = features.query.shape
        record = self.start(groups * shared, count)
        heads, places = (torch.tensor(each, device=output[0].device) for each in (record.heads, record.queries))
        causal = module.is_causal and "memory" not in given
        weights = linear_rows(features, given.get("attention_mask"), places, causal=causal)
        record.weights = weights.index_select(1, heads).to(output[0].dtype)


def linear_rows(features: Features, mask: Any, places: Tensor, *, causal: bool) -> Tensor:
    """Return rows of the weights of linear attention: (B, H, q, S).

    Source: Katharopoulos et al. 2020, §3.2, eq. 4, https://arxiv.org/abs/2006.16236
    """
    query, rotated = (each[..., places, :] for each in (features.query, features.rotated_query))
    keys = torch.arange(features.key.shape[-2], device=places.device)
    seen = keys[None] <= places[:, None] if causal else torch.ones_like(places[:, None] + keys[None], dtype=torch.bool)
    if mask is not None and mask.documents is not None:
        own = mask.documents.index_select(1, places)
        seen = seen & (own[:, None, None, :, None] == mask.documents[:, None, None, None])
    normaliser = (query @ features.key.transpose(-1, -2) * seen).sum(-1, keepdim=True)
    scores = rotated @ features.rotated_key.transpose(-1, -2) * seen
    return (scores / torch.where(normaliser > 0, normaliser, 1)).flatten(1, 2)


def linear_features(module: Any, given: dict[str, Any]) -> Features:
    """Return the features that linear attention makes of its inputs, self-attention or cross-attention.

    ValueError where earlier keys are in the state of a cache, which no longer holds them one by one.
    """
    hidden, memory, position, cache = (given.get(key) for key in ("hidden", "memory", "position", "past_key_values"))
    if memory is None and cache is not None and cache.get_seq_length(module.layer_idx) > given["hidden"].shape[1]:
        raise ValueError(
            "kernel='linear' keeps a state in past_key_values, and not the keys of earlier tokens, whose weights are "
            "unknown; capture a forward over all tokens with use_cache=False"
        )
    where: Any = position
    read, added = (hidden, where.query_key) if memory is None else (memory, where.memory_key)
    own = hidden if where.query_key is None else hidden + where.query_key
    key = module.key(read if added is None else read + added)
    query = module.placed_query(hidden, position) if memory is None else module.query(own)
    with torch.autocast(query.device.type, enabled=False):
        mapped = map_features(module.config, query), map_features(module.config, key, given.get("attention_mask"))
        return group_features(*mapped, module.value(read), where.rotation if memory is None else None)


class GlobalRecorder(ForwardRecorder):
    """Record attention in which global tokens have projections of their own.

    Source: Beltagy et al. 2020, Longformer, §3.1, https://arxiv.org/abs/2004.05150
    """

    last: tuple[AttentionRecord, Layout] | None = None

    def lay_out(self, call: AttentionCall, queries: Tensor) -> Layout:
        layout = super().lay_out(call, queries)
        self.last = self.captured[-1], layout
        return layout

    def record_forward(self, module: Any, given: dict[str, Any], output: Any) -> None:
        if given.get("global_tokens") is None or self.last is None:
            return
        record, layout = self.last
        hidden, position, project = given["hidden"], given["position"], module.global_projections
        rows = given["global_tokens"].rows(hidden, position.read)
        turned = None if position.rotation is None else rows.rotation(position.rotation)
        query, key = apply_rotation(project.query(rows.read(hidden)), project.key(hidden), turned)
        call = AttentionCall(query, key, project.value(hidden), rows.mask, module.scaling, is_causal=False)
        heads = torch.tensor(record.heads, device=query.device)
        every = torch.arange(query.shape[2], device=query.device)
        write_global_rows(record.weights, attention_weights(call, heads, every), rows, layout)
        if record.scores is not None:
            write_global_rows(record.scores, attention_scores(call, heads, every), rows, layout)


def write_global_rows(weights: Tensor, own: Tensor, rows: Any, layout: Layout) -> None:
    """Write the rows of global tokens (B, h, M, S) in place of those that all tokens have: (B, h, q, S).

    Without padding, `own` holds all real tokens in one row, of which a token sees those of its document.
    """
    for part in layout.parts:
        start = part.queries.start or 0
        for row in range(len(rows.outputs)):
            batch = row if part.batch is None else part.batch
            same = (rows.outputs[row][None] == start + part.own[:, None]) & rows.chosen[row][None]
            for place, number in same.nonzero().tolist():
                weights[batch, :, part.rows[place], part.columns] = own[row, :, number, part.queries]


class AxialRecorder(ForwardRecorder):
    """Make one record of the chunks of a grid, with all of its rows: (B, I, J, D) -> (B * I, h, q, J)."""

    def record_forward(self, module: Any, given: dict[str, Any], output: Any) -> None:
        grid, records = given["grid"], self.captured
        if grid.ndim == 3:  # a single chain has no chunks
            return
        count = len(range(0, grid.shape[1], given["chunk_size"]))
        chunks = records[-count:]
        del records[-count:]
        self.step -= count - 1

        def joined(parts: list[Tensor], _: float) -> Tensor:
            return torch.cat([part.unflatten(0, (len(grid), -1)) for part in parts], dim=1).flatten(0, 1)

        records.append(chunks[0].combined(chunks, joined))


RECORDERS: dict[str, type[CoreRecorder]] = {
    "recurrent": AlignmentRecorder,
    "linear": LinearRecorder,
    "global": GlobalRecorder,
    "axial": AxialRecorder,
}
