"""Capture attention while a model runs: `qkv.capture_attention`.

Shapes: B batch, T queries, S keys, H heads, K head_dim; h heads and q queries asked for.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from inspect import signature
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from qkv.scripts.attention.backend import recorded_by_backend
from qkv.scripts.attention.layers import Indices, Layers, attention_layers, chosen_layers
from qkv.scripts.attention.masks import recorded_by_mask
from qkv.scripts.attention.recorder import Recorder
from qkv.scripts.attention.records import AttentionRecord, CapturedAttention


@contextmanager
def capture_attention(
    model: nn.Module,
    inputs: Mapping[str, Any] | None = None,
    *,
    layers: Layers = None,
    heads: Indices = None,
    queries: Indices = None,
    each: Callable[[AttentionRecord], None] | None = None,
) -> Iterator[CapturedAttention]:
    """Capture attention weights of a model, ours or transformers', while it runs its usual backend.

    `output_attentions=True` makes a model run eagerly and keeps the weights of all layers; here it runs as always
    (sdpa, flex attention, padding removed, windows in chunks, cached steps of `generate`), and only the rows asked for
    are computed again, by the same formula. The numbers are those of eager attention without dropout.

        with qkv.capture_attention(model, layers=[0, -1], queries=slice(-1, None)) as captured:
            model(**inputs)
        captured.select("decoder", layer=-1)[0].weights   # (B, H, 1, S)

        with qkv.capture_attention(model, layers={"cross": -1}) as captured:
            model.generate(**inputs)
        captured.join("cross", -1).weights   # (B, H, tokens, source)

    With `inputs`, a dict for the forward, the model runs at once and `captured.outputs` is its output. `layers` are
    numbers in every stack (-1 is the last), or a dict by the name of a stack: encoder, decoder, cross, text, image;
    `heads` and `queries` are numbers or a slice, queries counted in each forward. None stands for all. `each` is called
    with every record, which then is not kept: weights of one layer are in memory at a time.

    A model of pairs has the attention of residues as its encoder, of an alignment (B * sequences, h, q, S). Three more
    stacks are captured where `layers` names them: column (B * L, h, sequences, sequences) of an alignment; starting and
    ending, triangle attention (B * L, h, q, S), in whose row i the pair (i, q) attends to (i, s), and (q, i) to (s, i).

    `kernel="linear"` has no weights of earlier tokens in a cache, and `gated_delta` has none at all.

    ValueError for an unknown layer, head or query, for numbers that a kernel or a backend lacks, and for a compiled
    model.

    Shapes: records with weights of (B, h, q, S)
    """
    check_not_compiled(model)
    every = attention_layers(model)
    chosen = chosen_layers(every, layers)
    captured = CapturedAttention(Counter(layer.stack for layer in every))
    with ExitStack() as stack:
        for layer in chosen:
            if layer.kind == "gated_delta":
                raise ValueError("kernel='gated_delta' has no attention weights; leave its layers out by layers=")
            recorded = recorded_by_mask if layer.is_ours else recorded_by_backend
            stack.enter_context(recorded(Recorder(layer, (heads, queries), each or captured.append)))
        # As for a hook that may read them, the last layers of the model compute all tokens.
        for module in (each for each in model.modules() if isinstance(each, PreTrainedModel)):
            stack.enter_context(module.register_forward_hook(lambda *_: None))
        # `generate` compiles its steps for static caches on a GPU.
        if (config := getattr(model, "generation_config", None)) is not None:
            stack.callback(setattr, config, "disable_compile", getattr(config, "disable_compile", None))
            config.disable_compile = True
        if inputs is not None:
            captured.outputs = model(**inputs)
        yield captured


def check_not_compiled(model: nn.Module) -> None:
    """Raise ValueError for a compiled model, whose graph may have been made before."""
    if type(model).__name__ == "OptimizedModule" or any(each._compiled_call_impl for each in model.modules()):
        raise ValueError(
            "model is compiled, and its graph has no attention weights; give the model itself, without torch.compile"
        )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Turn dropout off in this context."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def without_cache(model: nn.Module, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a forward that keeps no cache."""
    return {"use_cache": False, **inputs} if "use_cache" in signature(type(model).forward).parameters else dict(inputs)
