"""Capture attention while a model runs: `qkv.capture_attention`.

Shapes: B batch, T queries, S keys, H heads, K head_dim; h heads and q queries asked for.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, get_args

from torch import nn
from transformers import AttentionInterface

from qkv.scripts.attention.captured import CapturedAttention
from qkv.scripts.attention.layers import AttentionLayer, Indices, Layers, attention_layers, chosen_layers
from qkv.scripts.attention.recorder import AttentionFunction, Extra, Recorder, Wanted, installed

Observers = Mapping[nn.Module, Recorder]


@contextmanager
def capture_attention(
    model: nn.Module,
    inputs: Mapping[str, Any] | None = None,
    *,
    layers: Layers = None,
    heads: Indices = None,
    queries: Indices = None,
    also: Collection[Extra] = (),
) -> Iterator[CapturedAttention]:
    """Capture attention weights of a model, ours or transformers', while it runs its usual backend.

    `output_attentions=True` makes a model run eagerly and builds the weights of all layers; here it runs as it does
    (sdpa, flex attention, padding removed, windows in chunks, cached steps of `generate`), and only the rows that are
    asked for are computed again, by the same formula. The numbers are those of eager attention without dropout.

        with qkv.capture_attention(model, layers=[0, -1], queries=slice(-1, None)) as captured:
            model(**inputs)
        captured.select("decoder", layer=-1)[0].weights   # (B, H, 1, S)

        with qkv.capture_attention(model, layers={"cross": -1}) as captured:
            output = model.generate(**inputs, num_beams=4, return_dict_in_generate=True, output_scores=True)
        captured.beams(output.beam_indices).join("cross", -1).weights   # (B, H, tokens, source)

        with qkv.capture_attention(model, inputs, also=["gradients"]) as captured:
            captured.relevance(captured.outputs.logits[0, label])["encoder"]   # (B, T, T)

    With `inputs`, a dict for the forward, the model runs at once and `captured.outputs` is what it gives. `layers` are
    numbers in every stack (-1 is the last), or a dict by the name of a stack: encoder, decoder, cross, text, image;
    `heads` and `queries` are numbers or a slice, of queries those of each forward. None is all. `also` adds
    "scores", those before softmax, "norms", the value-weighted norms of Kobayashi et al., and "gradients", which keeps
    what `captured.gradients` and `captured.relevance` need. `captured.rollout` and `captured.flow` follow the layers of
    a stack, `captured.join` puts the steps of `generate` together, and `captured.beams` follows its winners.

    A model of pairs has the attention of residues as its encoder, of an alignment (B * sequences, h, q, S). Three more
    stacks are captured where `layers` names them: column (B * L, h, sequences, sequences) of an alignment; starting and
    ending, triangle attention (B * L, h, q, S), whose row i is how the pair (i, q) attends to (i, s), and (q, i) to
    (s, i). Recycling adds forwards.

    Kernels: `linear` has weights but no scores, and none of earlier tokens in a cache; alignments of recurrent models
    have weights alone; models of pairs have no gradients; `gated_delta` has no weights. A compiled model cannot be
    observed.

    ValueError for a layer, head or query that there is not, and for what a model or a backend has not.

    Shapes: records with weights, scores and norms of (B, h, q, S)
    Source: norms: Kobayashi et al. 2020, §2.2, https://aclanthology.org/2020.emnlp-main.574; rollout and flow: Abnar &
        Zuidema 2020, §3, https://arxiv.org/abs/2005.00928; relevance: Chefer et al. 2021, §3.1,
        https://arxiv.org/abs/2103.15679
    """
    check_not_compiled(model)
    every = attention_layers(model)
    chosen = chosen_layers(every, layers)
    wanted = Wanted(heads, queries, frozenset(also))
    check_extras(also)
    for layer in chosen:
        check_kind(layer, wanted)
    depths = {layer.stack: sum(other.stack == layer.stack for other in every) for layer in every}
    captured = CapturedAttention(depths)
    with ExitStack() as stack:
        recorders = {layer.module: Recorder(layer, wanted, captured) for layer in chosen}
        stack.enter_context(observed_interface(recorders))
        for recorder in recorders.values():
            stack.enter_context(installed(recorder, model))
        stack.enter_context(uncompiled(model))
        if inputs is not None:
            captured.outputs = model(**inputs)
        yield captured


def check_not_compiled(model: nn.Module) -> None:
    """Raise ValueError for a compiled model, whose graph may have been made before."""
    if type(model).__name__ == "OptimizedModule" or any(each._compiled_call_impl for each in model.modules()):
        raise ValueError(
            "model is compiled, and its graph has no attention weights; give the model itself, without torch.compile"
        )


def check_extras(also: Collection[str]) -> None:
    """Raise ValueError for what cannot be captured."""
    for name in [also] if isinstance(also, str) else also:
        if isinstance(also, str) or name not in get_args(Extra):
            raise ValueError(f"also={also!r} is no list of {', '.join(get_args(Extra))}; write also=['norms']")


def check_kind(layer: AttentionLayer, wanted: Wanted) -> None:
    """Raise ValueError where the kernel of a layer has not what is asked for."""
    lacking = {
        "gated_delta": ("weights",),
        "linear": ("scores", "gradients"),
        "recurrent": ("scores", "norms", "gradients"),
        "global": ("gradients",),
        "axial": ("gradients",),
    }
    what = {
        "linear": "kernel='linear'",
        "gated_delta": "kernel='gated_delta'",
        "recurrent": "a recurrent alignment",
        "axial": "a model of pairs",
    }
    for name in lacking.get(layer.kind, ()):
        if name == "weights" or name in wanted.also:
            mend = "leave its layers out by layers=" if name == "weights" else f"leave {name} out of also"
            raise ValueError(f"{what.get(layer.kind, 'global_projections=True')} has no attention {name}; {mend}")


# Captures that are open, in any thread; while there are some, transformers' lookup of attention functions is ours.
OPEN: list[Observers] = []
LOCK = threading.Lock()
plain_lookup = AttentionInterface.get_interface


def observed_lookup(
    interface: AttentionInterface, attn_implementation: str, default: AttentionFunction
) -> AttentionFunction:
    """Look an attention function up as transformers does; return one that lets open captures record their modules."""
    attend = plain_lookup(interface, attn_implementation, default)

    def observed(module: nn.Module, *given: Any, **options: Any) -> Any:
        function: Callable[..., Any] = attend
        for observers in OPEN:
            # A module of ours is observed around this function, where its masks are still whole.
            if module in observers and not hasattr(type(module), "observe"):
                function = observers[module].observe(function, attn_implementation)
        return function(module, *given, **options)

    return observed


@contextmanager
def observed_interface(observers: Observers) -> Iterator[None]:
    """Let modules of transformers be observed meanwhile, by whatever backend they look up."""
    with LOCK:
        OPEN.append(observers)
        AttentionInterface.get_interface = observed_lookup  # type: ignore[assignment]
    try:
        yield
    finally:
        with LOCK:
            OPEN[:] = [each for each in OPEN if each is not observers]
            if not OPEN:
                AttentionInterface.get_interface = plain_lookup  # type: ignore[method-assign]


@contextmanager
def uncompiled(model: nn.Module) -> Iterator[None]:
    """Keep `generate` from compiling its steps, which it does for static caches on a GPU."""
    compiles = hasattr(model, "_valid_auto_compile_criteria")
    if compiles:
        model._valid_auto_compile_criteria = lambda *args, **kwargs: False  # type: ignore[assignment]
    try:
        yield
    finally:
        if compiles:
            vars(model).pop("_valid_auto_compile_criteria", None)
