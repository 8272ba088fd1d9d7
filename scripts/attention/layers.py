"""Attention layers of a model, ours or transformers': where they are, and what they can say."""

import inspect
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

Indices = int | slice | Sequence[int] | None
Layers = Indices | Mapping[str, Indices]
# What a module is, by the name of its class or of one that it extends: a published copy has classes of its own.
KINDS = {
    "GatedDeltaAttention": "gated_delta",
    "LinearSelfAttention": "linear",
    "LinearCrossAttention": "linear",
    "DotAttentionDecoder": "recurrent",
    "GlobalSelfAttention": "global",
    "AxialAttention": "axial",
}
# Stacks by a part of the path of their modules; the first that fits.
STACKS = {
    r"text_model|text_encoder|language_model": "text",
    r"vision_model|vision_tower|image_encoder|visual": "image",
    r"decoder": "decoder",
    r"encoder": "encoder",
}
# Attention of a model of pairs beside that of its residues: along the columns of an alignment, around triangles.
AXES = {"column_attn": "column", "starting.attention": "starting", "ending.attention": "ending"}
CROSS = re.compile(r"cross|enc_?dec|encoder_attn", re.IGNORECASE)


@dataclass(frozen=True)
class AttentionLayer:
    """One attention module: its stack and number, its path in the model, and its kind.

    `kind` is softmax, linear, recurrent, global (projections of its own for global tokens), axial (within each row of a
    grid) or gated_delta.
    """

    stack: str
    number: int
    path: str
    module: Any
    parent: nn.Module
    kind: str

    @property
    def is_of_tokens(self) -> bool:
        """False where sequences of an alignment or pairs attend to each other, which has to be asked for by name."""
        return stack_path(self.path, self.module)[1] not in AXES.values()


def attention_layers(model: nn.Module) -> list[AttentionLayer]:
    """Return the attention layers of a model, in the order of its modules.

    A stack is called text, image, decoder or encoder as its path says, cross for cross-attention, and by its whole path
    where two would have one name. Of a model of pairs, encoder is the attention of residues, and column, starting and
    ending that along columns of an alignment and around the nodes of triangles. ValueError where there is none.
    """
    modules = dict(model.named_modules())
    kinds = {path: kind for path, module in modules.items() if (kind := kind_of(module))}
    names = stack_names({path: stack_path(path, modules[path]) for path in kinds}, modules)
    layers: list[AttentionLayer] = []
    for path, kind in kinds.items():
        number = sum(layer.stack == names[path] for layer in layers)
        parent = modules[path.rpartition(".")[0]]
        layers.append(AttentionLayer(names[path], number, path, modules[path], parent, kind))
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no layer that looks up its attention in transformers' AttentionInterface; "
            "ask the model itself for output_attentions=True"
        )
    return layers


def kind_of(module: nn.Module) -> str | None:
    """Return the kind of an attention module; None for any other.

    A module of transformers whose weights can be captured looks its attention function up by name as it runs.
    """
    classes = type(module).__mro__
    for each in classes:
        if each.__name__ in KINDS:
            return KINDS[each.__name__]
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return "softmax" if code is not None and "ALL_ATTENTION_FUNCTIONS" in code.co_names else None


def stack_path(path: str, module: nn.Module) -> tuple[str, str]:
    """Return the path of the list of layers that a module is in, and its part in a layer: cross, one of AXES, or ""."""
    before, number, after = (re.split(r"\.(\d+)(?=\.|$)", path, maxsplit=1) + ["", ""])[:3]
    own = (after if number else path.rpartition(".")[2]).removeprefix(".")
    if kind_of(module) == "recurrent" or CROSS.search(f"{own} {type(module).__name__}"):
        return before, "cross"
    return before, AXES.get(own, "")


def stack_names(stacks: Mapping[str, tuple[str, str]], modules: Mapping[str, Any]) -> dict[str, str]:
    """Return the name of the stack of each path; the path of the stack where a name stands for two."""
    names = {}
    for path, stack in stacks.items():
        fallback = "decoder" if getattr(modules[path], "is_causal", False) else "encoder"
        fitting = (name for pattern, name in STACKS.items() if re.search(pattern, stack[0]))
        names[path] = stack[1] or next(fitting, fallback)
    shared = {name: {stacks[path] for path, own in names.items() if own == name} for name in names.values()}
    long = {path: f"{stacks[path][0]}.{stacks[path][1]}".removesuffix(".") for path in names}
    return {path: name if len(shared[name]) == 1 else long[path] for path, name in names.items()}


def chosen_layers(layers: list[AttentionLayer], wanted: Layers) -> list[AttentionLayer]:
    """Return the layers that are asked for: of every stack of tokens by number, or of some by a mapping of their names.

    ValueError for a stack that there is not, and for a number that its stack, or without a mapping none, has.
    """
    counts = Counter(layer.stack for layer in layers)
    if isinstance(wanted, Mapping):
        by_stack: Mapping[str, Indices] = wanted
    else:
        by_stack = dict.fromkeys((layer.stack for layer in layers if layer.is_of_tokens), wanted)
    for stack, indices in by_stack.items():
        if stack not in counts:
            raise ValueError(f"layers names the stack {stack!r}, which is not in the model; name {', '.join(counts)}")
        limit = counts[stack] if isinstance(wanted, Mapping) else max(counts.values())
        for number in numbers(indices):
            if not -limit <= number < limit:
                there = ", ".join(f"{count} in {name}" for name, count in counts.items())
                raise ValueError(
                    f"layers asks for layer {number}, but there are {there}; count from 0, or from the last by -1"
                )
    return [
        layer
        for layer in layers
        if layer.stack in by_stack and is_chosen(layer.number, by_stack[layer.stack], counts[layer.stack])
    ]


def is_chosen(number: int, indices: Indices, count: int) -> bool:
    """Return True where indices name a number among `count`."""
    if indices is None or isinstance(indices, slice):
        return number in range(count)[slice(None) if indices is None else indices]
    return any(number in (each, each + count) for each in numbers(indices))


def numbers(indices: Indices) -> Iterator[int]:
    """Yield the numbers that are named one by one."""
    if isinstance(indices, int):
        yield indices
    elif indices is not None and not isinstance(indices, slice):
        yield from map(int, indices)


def indices_of(name: str, indices: Indices, count: int) -> list[int]:
    """Return the places that indices name among `count`; ValueError for one that there is not."""
    if indices is None or isinstance(indices, slice):
        return list(range(count)[slice(None) if indices is None else indices])
    for number in numbers(indices):
        if not -count <= number < count:
            raise ValueError(
                f"{name} asks for {number}, but this forward has {count} {name}; name some from 0 to {count - 1}, or "
                "give a slice, which takes those that are there"
            )
    return [number % count for number in numbers(indices)]
