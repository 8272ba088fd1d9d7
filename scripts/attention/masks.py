"""Record attention of ours, or of a published copy, by a mask in the context of each layer.

A pre-hook of PyTorch puts a mask into the context that shows the inputs of attention to a recorder and attends as the
mask inside of it. A published copy has classes of its own, so they are told apart by their names.

Shapes: B batch, T queries, S keys, M global tokens, N tokens of all documents, h heads and q queries asked for.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.generation.continuous_batching import PagedAttentionCache

from qkv.modeling.position.hooks import apply_rotation
from qkv.scripts.attention.layers import looks_up, plain_forward
from qkv.scripts.attention.recorder import TRACKER, Place, Recorder, check_backend
from qkv.scripts.attention.weights import AttentionCall, attention_weights


@dataclass
class RecordingMask:
    """A sparse mask that records the inputs of attention, and attends by the mask inside.

    Shapes: heads (B, H, T, K), 2 x (B, G, S, K)
    """

    inner: Any
    show: Callable[..., None]

    def attend(self, function: Callable[..., Any], module: nn.Module, *heads: Any, **options: Any) -> Any:
        attend = partial(self.inner.attend, function) if hasattr(self.inner, "attend") else function
        attended = attend(module, *heads[:3], self.inner, **options)
        self.show(module, *heads[:2], self.innermost, **options)
        return attended

    def to(self, *args: Any, **kwargs: Any) -> "RecordingMask":
        """Move the mask inside, as Accelerate does with the arguments of layers that it places on devices."""
        return replace(self, inner=self.inner.to(*args, **kwargs) if hasattr(self.inner, "to") else self.inner)

    @property
    def innermost(self) -> Any:
        """The mask of the model, inside of the masks of all captures."""
        return self.inner.innermost if isinstance(self.inner, RecordingMask) else self.inner


@contextmanager
def recorded_by_mask(recorder: Recorder) -> Iterator[None]:
    """Record a layer in this context."""
    module = recorder.layer.module
    before = module.register_forward_pre_hook(partial(before_forward, recorder), with_kwargs=True)
    with before, module.register_forward_hook(partial(after_forward, recorder), with_kwargs=True):
        yield


def before_forward(recorder: Recorder, module: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Put a mask that records in the context of a layer; linear attention is told to return its weights."""
    context: Any = kwargs.get("context")
    if recorder.layer.kind == "linear":  # in a backward pass, too, where a checkpointed layer has to do the same
        return args, {**kwargs, "context": context._replace(weights=True)}
    if recorder.layer.kind == "recurrent" or TRACKER.is_bw:
        return None
    recorder.parts = []
    backend = context.backend or module.config._attn_implementation
    caches = context.cache, context.options.get("cache")
    check_backend(backend, is_batching=any(isinstance(each, PagedAttentionCache) for each in caches))
    forward = next(plain_forward(each) for each in type(module).__mro__ if looks_up(each, "by_mask"))
    forward.__globals__["by_mask"].__globals__["SparseMask"].register(RecordingMask)
    if any(each.__name__ == "CrossAttention" for each in type(module).__mro__):
        memory = context.memory._replace(mask=recording(recorder, backend, context.memory.mask))
        return args, {**kwargs, "context": context._replace(memory=memory)}
    return args, {**kwargs, "context": context._replace(mask=recording(recorder, backend, context.mask))}


def recording(recorder: Recorder, backend: str, mask: Any) -> Any:
    """Wrap a mask, or the mask of each document of a packed batch, so that it records."""

    def show(place: Place | None, *heads: Any, **options: Any) -> None:
        recorder.add(AttentionCall.of(backend, *heads, **options), place)

    if not hasattr(mask, "masks"):
        return RecordingMask(mask, partial(show, None))
    (batch, length), (_, keys) = mask.queries.shape, mask.keys.shape
    masks, documents = [], (each.index.split(each.lengths) for each in (mask.queries, mask.keys))
    for inner, own, read in zip(mask.masks, *documents, strict=True):
        place = Place(int(own[0]) // length, own % length, read % keys, (batch, length, keys))
        masks.append(RecordingMask(inner, partial(show, place)))
    return replace(mask, masks=masks)


@torch.no_grad()
def after_forward(recorder: Recorder, module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> None:
    """Make the record of a layer's forward, but not again in a backward pass."""
    kind = recorder.layer.kind
    if TRACKER.is_bw:
        return
    if kind in ("linear", "recurrent"):  # which computed them
        weights = output[1 if kind == "linear" else 3].detach()
        recorder.count(*weights.shape[1:3])
        recorder.append(weights[:, recorder.heads][:, :, recorder.queries])
        return
    weights = recorder.joined(len(args[0]) if kind == "axial" and args[0].ndim == 4 else 1)
    if kind == "global" and kwargs["context"].options.get("global_tokens") is not None:
        write_global_rows(recorder, weights, module, kwargs["hidden"], kwargs["context"])
    recorder.append(weights)


def write_global_rows(recorder: Recorder, weights: Tensor, module: Any, hidden: Tensor, context: Any) -> None:
    """Write the rows of global tokens, which have separate projections: (B, h, q, S).

    Source: Beltagy et al. 2020, Longformer, §3.1, https://arxiv.org/abs/2004.05150
    """
    project, rotation, mask = module.global_projections, context.position.rotation, context.mask
    rows = context.options["global_tokens"].rows(hidden, context.queries)
    turned = None if rotation is None else rows.rotation(rotation)
    query, key = apply_rotation(project.query(rows.read(hidden)), project.key(hidden), turned)
    call = AttentionCall(query, key, rows.mask, module.scaling, is_causal=False)
    heads = torch.tensor(recorder.heads, device=query.device)
    every = attention_weights(call, heads, torch.arange(query.shape[2], device=query.device))
    for row, number in rows.chosen.nonzero().tolist():
        place, own = int(rows.outputs[row, number]), every[row, :, number]
        if hasattr(mask, "masks"):  # all documents are in one row
            batch, length = mask.keys.shape
            row, place = divmod(int(mask.queries.index[place]), length)
            spread = own.new_zeros(len(own), batch * length).index_copy(1, mask.keys.index, own)
            own = spread.unflatten(1, (batch, length))[:, row]
        if place in recorder.queries:
            weights[row, :, recorder.queries.index(place)] = own
