"""Layers of a model, ours or transformers', and what is observed of them while it runs.

Shapes: B batch, T tokens, N real tokens of a batch without padding, D hidden_size, q queries, S keys.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from qkv.scripts.attention.capture import capture_attention
from qkv.scripts.attention.layers import AttentionLayer, attention_layers
from qkv.scripts.attention.records import AttentionRecord

Batch = Mapping[str, Any]
IGNORED = -100  # a label where no prediction is due


class ModelLayer(NamedTuple):
    """A layer: its stack as `capture_attention` names it, its number in it, its path and its module."""

    stack: str
    number: int
    path: str
    module: nn.Module


def model_layers(model: nn.Module) -> list[ModelLayer]:
    """Return the layers of each stack, which hold its attention; none of a recurrent network.

    ValueError where a model has no attention that can be captured.
    """
    layers: dict[str, ModelLayer] = {}
    for attention in attention_layers(model):
        path = layer_path(attention)
        # Cross-attention stands in a layer of the decoder, after its self-attention.
        if attention.kind != "recurrent" and path and path not in layers:
            layers[path] = ModelLayer(attention.stack, attention.number, path, model.get_submodule(path))
    return list(layers.values())


def layer_path(attention: AttentionLayer) -> str | None:
    """Return the path of the layer around an attention module: up to the first number."""
    match = re.match(r".*?\.\d+(?=\.|$)", attention.path)
    return match[0] if match else None


def hidden_of(output: Any) -> Tensor:
    """Return the hidden states of a layer's output, which has more beside them in some models."""
    hidden: Tensor = output[0] if isinstance(output, tuple) else output
    return hidden


def without_cache(model: Any, batch: Batch) -> dict[str, Any]:
    """Return the inputs of a forward that keeps no cache, where a model has one, and is one pass of layers."""
    if "use_cache" in signature(type(model).forward).parameters:
        return {"use_cache": False, **batch}
    return {"num_recycles": 0, **batch} if getattr(model.config, "num_recycles", 0) else dict(batch)


@contextmanager
def hooked(hooks: Mapping[nn.Module, Callable[..., Any]]) -> Iterator[None]:
    """Let forward hooks run meanwhile."""
    with ExitStack() as stack:
        for module, hook in hooks.items():
            stack.callback(module.register_forward_hook(hook).remove)
        yield


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Turn dropout off meanwhile."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def every_token_computed(model: nn.Module) -> Iterator[None]:
    """Let our last layers compute all tokens, and not those alone that a head reads; a hook says somebody looks."""
    models = (module for module in model.modules() if isinstance(module, PreTrainedModel))
    with hooked(dict.fromkeys(models, lambda *_: None)):
        yield


@torch.no_grad()
def observed_forward(
    model: nn.Module,
    batch: Batch,
    on_attention: Callable[[AttentionRecord], None],
    on_layer: Callable[[ModelLayer, Any], None],
) -> Any:
    """Run a model once on its usual backend; hand over the attention and the output of each layer as it is computed.

    Nothing is kept of either: the weights of one layer are there at a time. Layers without weights, of
    kernel="gated_delta", have an output alone.
    """
    every, captured_layers = attention_layers(model), dict[str, list[int]]()
    for layer in every:
        if layer.kind != "gated_delta" and layer.is_of_tokens:
            captured_layers.setdefault(layer.stack, []).append(layer.number)
    with ExitStack() as stack:
        stack.enter_context(every_token_computed(model))
        captured = stack.enter_context(capture_attention(model, layers=captured_layers))

        def drain(*_: Any) -> None:
            for record in captured.records:
                on_attention(record)
            captured.records.clear()

        # Hooks run in the order in which they came: the capture's own, by which a record is complete, were before.
        stack.enter_context(hooked({layer.module: drain for layer in every}))
        hooks = {layer.module: lambda *seen, layer=layer: on_layer(layer, seen[2]) for layer in model_layers(model)}
        stack.enter_context(hooked(hooks))
        return model(**without_cache(model, batch))


def real_queries(record: AttentionRecord, mask: Tensor | None) -> Tensor | None:
    """Return which queries of a record are no padding by a mask of the inputs: (B, q), or None where that is not known.

    Where the shape of the mask is another, as that of sound before its convolutions, a token is real that some query
    attends to.
    """
    if mask is None:
        return None
    rows, queries, keys = len(record.weights), *record.weights.shape[-2:]
    if mask.shape[-1] == queries and mask.numel() == rows * queries:
        return mask.reshape(rows, queries).bool()
    return record.weights.amax((1, 2)) > 0 if queries == keys else None


def padding_mask(model: Any, stack: str, batch: Batch) -> Tensor | None:
    """Return the mask that a batch has for the queries of a stack, or None."""
    if stack == "image":
        return None
    if stack in ("decoder", "cross") and model.config.is_encoder_decoder:
        given = batch.get("decoder_attention_mask")
        # Without inputs of its own a decoder reads the labels, shifted.
        return given if given is not None or "decoder_input_ids" in batch else labelled(batch)
    mask = batch.get("attention_mask")
    if "msa_ids" in batch:
        return alignment_mask(batch)
    return batch.get("pixel_mask") if mask is None else mask


def alignment_mask(batch: Batch) -> Tensor:
    """Return which residues of an alignment are real, its first sequence the chain: (B, sequences, L)."""
    ids, chain, given = batch["msa_ids"], batch.get("attention_mask"), batch.get("msa_attention_mask")
    sequences = torch.ones_like(ids[..., 0]) if given is None else given
    sequences = torch.cat((torch.ones_like(sequences[:, :1]), sequences), dim=1)
    return sequences[..., None] * (torch.ones_like(ids[:, 0]) if chain is None else chain)[:, None]


def labelled(batch: Batch) -> Tensor | None:
    """Return which tokens of a batch have a label (B, T)."""
    labels = batch.get("labels")
    return labels != IGNORED if isinstance(labels, Tensor) and labels.ndim == 2 else None


def real_tokens(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Return the vectors of the real tokens, single precision at least; a batch without padding has no others.

    Shapes: hidden (B, T, D), or of an alignment (B, sequences, L, D), with as many marks, or (1, N, D) -> (N, D)
    """
    vectors = hidden.flatten(0, -2)
    vectors = vectors[mask.flatten()] if mask is not None and mask.numel() == len(vectors) else vectors
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))
