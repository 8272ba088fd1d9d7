"""Capture attention while a model runs: `qkv.capture_attention`.

Shapes: B batch, T queries, S keys, H heads, K head_dim; h heads and q queries asked for.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from torch import nn
from transformers import AttentionInterface

from qkv.scripts.attention.core import RECORDERS, CoreRecorder, is_observable, observed
from qkv.scripts.attention.layers import (
    AttentionLayer,
    Indices,
    Layers,
    attention_layers,
    chosen_layers,
    plain_forward,
)
from qkv.scripts.attention.recorder import Recorder, Wanted, check_backend
from qkv.scripts.attention.records import CapturedAttention


@contextmanager
def capture_attention(
    model: nn.Module,
    inputs: Mapping[str, Any] | None = None,
    *,
    layers: Layers = None,
    heads: Indices = None,
    queries: Indices = None,
    scores: bool = False,
) -> Iterator[CapturedAttention]:
    """Capture attention weights of a model, ours or transformers', while it runs its usual backend.

    `output_attentions=True` makes a model run eagerly and keeps the weights of all layers; here it runs as always
    (sdpa, flex attention, padding removed, windows in chunks, cached steps of `generate`), and only the rows asked for
    are computed again, by the same formula. The numbers are those of eager attention without dropout.

        with qkv.capture_attention(model, layers=[0, -1], queries=slice(-1, None)) as captured:
            model(**inputs)
        captured.select("decoder", layer=-1)[0].weights   # (B, H, 1, S)

        with qkv.capture_attention(model, layers={"cross": -1}) as captured:
            output = model.generate(**inputs, num_beams=4, return_dict_in_generate=True, output_scores=True)
        captured.beams(output.beam_indices).join("cross", -1).weights   # (B, H, tokens, source)

    With `inputs`, a dict for the forward, the model runs at once and `captured.outputs` is its output. `layers` are
    numbers in every stack (-1 is the last), or a dict by the name of a stack: encoder, decoder, cross, text, image;
    `heads` and `queries` are numbers or a slice, queries counted in each forward. None stands for all. `scores=True`
    adds those before softmax.

    A model of pairs has the attention of residues as its encoder, of an alignment (B * sequences, h, q, S). Three more
    stacks are captured where `layers` names them: column (B * L, h, sequences, sequences) of an alignment; starting and
    ending, triangle attention (B * L, h, q, S), in whose row i the pair (i, q) attends to (i, s), and (q, i) to (s, i).

    `kernel="linear"` and recurrent alignments have weights but no scores, and linear attention none of earlier tokens
    in a cache; `gated_delta` has no weights.

    ValueError for an unknown layer, head or query, for numbers that a kernel or a backend lacks, and for a compiled
    model.

    Shapes: records with weights and scores of (B, h, q, S)
    """
    check_not_compiled(model)
    every = attention_layers(model)
    chosen = chosen_layers(every, layers)
    for layer in chosen:
        check_kind(layer, scores=scores)
    captured = CapturedAttention(Counter(layer.stack for layer in every))
    with ExitStack() as stack:
        for layer in chosen:
            stack.enter_context(recording(layer, Wanted(heads, queries, scores), captured, model))
        stack.enter_context(uncompiled_generation(model))
        if inputs is not None:
            captured.outputs = model(**inputs)
        yield captured


def check_not_compiled(model: nn.Module) -> None:
    """Raise ValueError for a compiled model, whose graph may have been made before."""
    if type(model).__name__ == "OptimizedModule" or any(each._compiled_call_impl for each in model.modules()):
        raise ValueError(
            "model is compiled, and its graph has no attention weights; give the model itself, without torch.compile"
        )


def check_kind(layer: AttentionLayer, *, scores: bool) -> None:
    """Raise ValueError where the kernel of a layer lacks the numbers that are asked for."""
    if layer.kind == "gated_delta":
        raise ValueError("kernel='gated_delta' has no attention weights; leave its layers out by layers=")
    if scores and layer.kind in ("linear", "recurrent"):
        name = "kernel='linear'" if layer.kind == "linear" else "a recurrent alignment"
        raise ValueError(f"{name} has no attention scores; leave scores=True out")


def recording(
    layer: AttentionLayer, wanted: Wanted, captured: CapturedAttention, model: nn.Module
) -> AbstractContextManager[None]:
    """Record a layer in this context."""
    if is_observable(layer):
        return observed(RECORDERS.get(layer.kind, CoreRecorder)(layer, wanted, captured), model)
    return told_to_record(layer.module, Recorder(layer, wanted, captured))


class BackendName(str):
    """The name of the recording backend, equal to that of the recorded one: attention may hide keys by this name."""

    recorded = ""

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) or other == self.recorded

    __hash__ = str.__hash__


class RecordingConfig:
    """The config of one attention module of transformers, whose backend is the recording one."""

    def __init__(self, config: Any, recorder: Recorder) -> None:
        self.config, self.recorders = config, [recorder]

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "config"), name)

    @property
    def _attn_implementation(self) -> str:
        name = BackendName("qkv_recording")
        name.recorded = self.config._attn_implementation or "eager"
        check_backend(name.recorded)
        return name


def attend_and_record(module: Any, *given: Any, **options: Any) -> Any:
    """Attend by the backend that the module's config names, and let its recorders record."""
    forward = plain_forward(module)
    names = {name: forward.__globals__.get(name) for name in forward.__code__.co_names}
    eager = next((each for name, each in names.items() if "eager" in name), None)
    backend = str(module.config._attn_implementation.recorded)
    attend = names["ALL_ATTENTION_FUNCTIONS"].get_interface(backend, eager)
    for recorder in tuple(module.config.recorders):
        inner = attend

        def attend(*given: Any, recorder: Recorder = recorder, inner: Any = inner, **options: Any) -> Any:
            return recorder.attend(inner, backend, *given, **options)

    return attend(module, *given, **options)


AttentionInterface.register("qkv_recording", attend_and_record)
LOCK = threading.Lock()  # of the recorders of a module, which captures in several threads share


@contextmanager
def told_to_record(module: Any, recorder: Recorder) -> Iterator[None]:
    """Let an attention module of transformers look up the recording backend in this context."""
    with LOCK:
        if isinstance(module.config, RecordingConfig):
            module.config.recorders.append(recorder)
        else:
            module.config = RecordingConfig(module.config, recorder)
    try:
        yield
    finally:
        with LOCK:
            module.config.recorders.remove(recorder)
            if not module.config.recorders:
                module.config = module.config.config


@contextmanager
def uncompiled_generation(model: Any) -> Iterator[None]:
    """Keep `generate` from compiling its steps in this context, which it does for static caches on a GPU."""
    config = getattr(model, "generation_config", None)
    before = getattr(config, "disable_compile", None)
    if config is not None:
        config.disable_compile = True
    try:
        yield
    finally:
        if config is not None:
            config.disable_compile = before
