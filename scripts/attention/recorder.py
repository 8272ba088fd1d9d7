"""Record the attention of one layer while its model runs.

Shapes: B batch, T queries, S keys, H heads, K head_dim; h heads and q queries asked for.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.module_tracker import ModuleTracker
from transformers import PreTrainedModel

from qkv.scripts.attention.kernels import global_call, linear_features, linear_rows, write_global_rows
from qkv.scripts.attention.layers import AttentionLayer, Indices, indices_of
from qkv.scripts.attention.records import AttentionRecord, AttentionRecords
from qkv.scripts.attention.weights import (
    AttentionCall,
    Layout,
    Part,
    attention_scores,
    attention_weights,
    call_length,
    layout_of,
    output_projection,
    value_norms,
)

AttentionFunction = Callable[..., tuple[Tensor, Tensor | None]]
Extra = Literal["scores", "norms", "gradients"]
# Backends that get a mask from which each row can be told.
BACKENDS = ("eager", "sdpa", "flex_attention")
# `is_bw` is true in a backward pass. A layer that runs there is a checkpointed one, which its forward has recorded.
TRACKER = ModuleTracker()


@dataclass(frozen=True)
class Wanted:
    """The rows that are captured of a layer, and what else beside its weights."""

    heads: Indices
    queries: Indices
    also: frozenset[str]


def check_backend(implementation: str, options: dict[str, Any]) -> None:
    """Raise ValueError for a backend whose masks do not tell what each query sees."""
    batching = options.get("cache") is not None
    if batching or implementation not in BACKENDS:
        what = "continuous batching" if batching else f"attn_implementation={implementation!r}"
        raise ValueError(
            f"{what} keeps to itself which keys a query sees; capture with {', '.join(BACKENDS)} by "
            "model.set_attn_implementation, and generate"
        )


def leave(*_: object) -> None:
    """Leave all as it is: a hook that is there so that the module is called."""


class Recorder:
    """Record the attention of one layer."""

    def __init__(self, layer: AttentionLayer, wanted: Wanted, captured: AttentionRecords) -> None:
        self.layer, self.wanted, self.captured, self.step = layer, wanted, captured, 0
        self.projection: Tensor | None = None
        self.last: tuple[AttentionRecord, Layout] | None = None

    def observe(self, attend: AttentionFunction, implementation: str | None = None) -> AttentionFunction:
        """Return an attention function that does what one does, and records the rows that are asked for."""

        def attend_and_record(module: nn.Module, *given: Any, **options: Any) -> tuple[Tensor, Tensor | None]:
            own: Any = module
            mixed, weights = attend(module, *given, **options)
            if "gradients" in self.wanted.also and torch.is_grad_enabled() and not mixed.requires_grad:
                mixed.requires_grad_()
            # Parts of a model of pairs are told their backend at each call; their masks are in the biases.
            backend = implementation or own.config._attn_implementation or BACKENDS[0]
            check_backend(backend, options)
            if not TRACKER.is_bw:
                self.record_call(AttentionCall.of(module, *given, implementation=backend, **options), mixed)
            return mixed, weights

        return attend_and_record

    @torch.no_grad()
    def record_call(self, call: AttentionCall, mixed: Tensor) -> None:
        """Compute the rows of a softmax attention again and record them."""
        device, count = call.query.device, call_length(call)
        numbers = indices_of("heads", self.wanted.heads, call.query.shape[1])
        places = indices_of("queries", self.wanted.queries, count)
        heads, wanted = torch.tensor(numbers, device=device), torch.tensor(places, dtype=torch.long, device=device)
        layout = layout_of(call, wanted)
        weights = layout.assemble(lambda part: attention_weights(part.call, heads, part.own))
        record = self.add(numbers, places, (call.query.shape[1], count), weights)
        if self.layer.kind == "global":
            self.last = record, layout
        if "scores" in self.wanted.also:
            record.scores = layout.assemble(lambda part: attention_scores(part.call, heads, part.own), -torch.inf)
        if "norms" in self.wanted.also:
            width = call.query.shape[1] * call.value.shape[-1]
            record.norms = weights * layout.assemble(lambda part: self.norms_of_part(part, heads, width))
        if "gradients" in self.wanted.also:
            record.mixed, record.layout = mixed, layout

    def add(self, heads: list[int], queries: list[int], counts: tuple[int, int], weights: Tensor) -> AttentionRecord:
        """Add a record of this layer's next forward."""
        own = AttentionRecord(self.layer.stack, self.layer.number, self.step, heads, queries, *counts, weights)
        self.captured.records.append(own)
        self.step += 1
        return own

    def norms_of(self, value: Tensor, heads: Tensor, width: int) -> Tensor:
        """Return the length of values after a projection of `width` inputs: (B, h, S, K) -> (B, h, S)."""
        if self.projection is None:
            projection = output_projection(self.layer.module, self.layer.parent, width)
            self.projection = projection.unflatten(0, (-1, value.shape[-1]))
        return value_norms(value, self.projection, heads)

    def norms_of_part(self, part: Part, heads: Tensor, width: int) -> Tensor:
        """Return the length of projected values for each query that may read them: (B, h, q, S)."""
        norms = self.norms_of(part.call.keys_of(heads, part.call.value), heads, width)
        return norms[:, :, None].expand(-1, -1, len(part.own), -1)

    @torch.no_grad()
    def record_forward(self, module: Any, given: tuple[Any, ...], options: dict[str, Any], output: Any) -> None:
        """Record a layer whose weights do not come from an attention function, after its forward."""
        if TRACKER.is_bw:
            return
        arguments = inspect.signature(type(module).forward).bind(module, *given, **options).arguments
        arguments |= arguments.pop("kwargs", {})
        KIND_RECORDS[self.layer.kind](self, module, arguments, output)


def record_alignment(recorder: Recorder, module: Any, given: dict[str, Any], output: Any) -> None:
    """Record the alignment of a recurrent decoder, which it always computes: (B, 1, T, S)."""
    weights = output[3]
    numbers = indices_of("heads", recorder.wanted.heads, weights.shape[1])
    places = indices_of("queries", recorder.wanted.queries, weights.shape[2])
    recorder.add(numbers, places, (weights.shape[1], weights.shape[2]), weights[:, numbers][:, :, places].detach())


def record_linear(recorder: Recorder, module: Any, given: dict[str, Any], output: Any) -> None:
    """Record linear attention, which computes no weights."""
    features = linear_features(module, given)
    _, groups, shared, count, _ = features.query.shape
    numbers = indices_of("heads", recorder.wanted.heads, groups * shared)
    places = indices_of("queries", recorder.wanted.queries, count)
    heads, wanted = (torch.tensor(each, dtype=torch.long, device=output[0].device) for each in (numbers, places))
    causal = module.is_causal and "memory" not in given
    weights = linear_rows(features, given.get("attention_mask"), heads, wanted, causal=causal).to(output[0].dtype)
    record = recorder.add(numbers, places, (groups * shared, count), weights)
    if "norms" in recorder.wanted.also:
        value = features.value.squeeze(2).index_select(1, heads // shared).to(weights.dtype)
        record.norms = weights * recorder.norms_of(value, heads, groups * shared * value.shape[-1])[:, :, None]


def record_global(recorder: Recorder, module: Any, given: dict[str, Any], output: Any) -> None:
    """Put in the rows of global tokens, which have projections of their own."""
    if given.get("global_tokens") is None or recorder.last is None:
        return
    record, layout = recorder.last
    call, rows = global_call(module, given)
    heads = torch.tensor(record.heads, device=call.query.device)
    every = torch.arange(call.query.shape[2], device=call.query.device)
    own = attention_weights(call, heads, every)
    write_global_rows(record.weights, own, rows, layout)
    if record.scores is not None:
        write_global_rows(record.scores, attention_scores(call, heads, every), rows, layout)
    if record.norms is not None:
        width = call.query.shape[1] * call.value.shape[-1]
        norms = recorder.norms_of(call.keys_of(heads, call.value), heads, width)
        write_global_rows(record.norms, own * norms[:, :, None], rows, layout)


def record_axial(recorder: Recorder, module: Any, given: dict[str, Any], output: Any) -> None:
    """Make one record of those of the chunks of a grid, with all of its rows: (B, I, J, D) -> (B * I, h, q, J).

    A single chain (B, L, D) has no chunks.
    """
    grid, records = given["grid"], recorder.captured.records
    if grid.ndim == 3:
        return
    count = len(range(0, grid.shape[1], given["chunk_size"]))
    chunks = records[-count:]
    del records[-count:]
    recorder.step -= count - 1
    joined: dict[str, Any] = {}
    for name in ("weights", "scores", "norms"):
        parts = [getattr(chunk, name) for chunk in chunks]
        if parts[0] is not None:
            rows = [part.unflatten(0, (len(grid), -1)) for part in parts]
            joined[name] = torch.cat(rows, dim=1).flatten(0, 1)
    records.append(replace(chunks[0], **joined))


@contextmanager
def installed(recorder: Recorder, model: nn.Module) -> Iterator[None]:
    """Observe the layer; hooks turn off the steps of `generate` that go around it.

    Hooks on the models around it let a last layer compute all queries, and not those alone that a head reads.
    """
    module, handles = recorder.layer.module, []
    is_last = recorder.layer.number == recorder.captured.depths[recorder.layer.stack] - 1
    inside = ((path, each) for path, each in model.named_modules() if isinstance(each, PreTrainedModel))
    around = [each for path, each in inside if not path or recorder.layer.path.startswith(f"{path}.")]
    if hasattr(type(module), "observe"):
        previous = vars(module).get("observe")
        inner = previous or type(module).observe
        module.observe = lambda attend: recorder.observe(inner(attend))
        handles += [each.register_forward_hook(leave) for each in (module, *(around if is_last else ()))]
    if recorder.layer.kind in KIND_RECORDS:
        handles.append(module.register_forward_hook(recorder.record_forward, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        if hasattr(type(module), "observe"):
            del module.observe
            if previous is not None:
                module.observe = previous


KIND_RECORDS: dict[str, Callable[[Recorder, Any, dict[str, Any], Any], None]] = {
    "recurrent": record_alignment,
    "linear": record_linear,
    "global": record_global,
    "axial": record_axial,
}
