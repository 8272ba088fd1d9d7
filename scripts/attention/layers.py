"""Find the attention layers of a model, ours or transformers', and choose some of them."""

import inspect
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from qkv.scripts.common.files import table

Indices = int | slice | Sequence[int] | None
Layers = Indices | Mapping[str, Indices]
TABLES = table(__file__)
KINDS: dict[str, str] = TABLES["kinds"]
STACKS: dict[str, str] = TABLES["stacks"]
# Attention in a model of pairs beside that of residues: along columns of an alignment, around triangles.
AXES = {"column_attn": "column", "starting.attention": "starting", "ending.attention": "ending"}
CROSS = re.compile(r"cross|enc_?dec|encoder_attn", re.IGNORECASE)


@dataclass(frozen=True)
class AttentionLayer:
    """An attention module: its stack and number, its path, and its kind.

    `kind` is softmax, linear, recurrent, global (global tokens with projections of their own), axial (within each row
    of a grid) or gated_delta.
    """

    stack: str
    number: int
    path: str
    module: Any
    kind: str

    @property
    def is_ours(self) -> bool:
        """True for a layer of ours or of a published copy."""
        return self.kind in KINDS.values() or any(looks_up(each, "by_mask") for each in type(self.module).__mro__)

    @property
    def is_of_tokens(self) -> bool:
        """False where sequences of an alignment or pairs attend to each other; `layers` must name these."""
        return stack_path(self.path, self.module)[1] not in AXES.values()


def attention_layers(model: nn.Module) -> list[AttentionLayer]:
    """Return the attention layers of a model, in the order of its modules.

    A stack is called text, image, decoder or encoder after its path, cross for cross-attention, and by its whole path
    where two would share a name. ValueError for a model without attention layers.
    """
    modules = dict(model.named_modules())
    kinds = {path: kind for path, module in modules.items() if (kind := kind_of(module))}
    names = stack_names({path: stack_path(path, modules[path]) for path in kinds}, modules)
    layers, counts = list[AttentionLayer](), Counter[str]()
    for path, kind in kinds.items():
        layers.append(AttentionLayer(names[path], counts[names[path]], path, modules[path], kind))
        counts[names[path]] += 1
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no layer that looks up its attention in transformers' AttentionInterface; "
            "ask the model itself for output_attentions=True"
        )
    return layers


def kind_of(module: nn.Module) -> str | None:
    """Return the kind of an attention module, None for any other module.

    Attention that can be captured looks up its function by name in `forward`.
    """
    kind = next((KINDS[base.__name__] for base in type(module).__mro__ if base.__name__ in KINDS), None)
    return kind or ("softmax" if looks_up(type(module), "ALL_ATTENTION_FUNCTIONS") else None)


def looks_up(kind: type, name: str) -> bool:
    """Tell whether the `forward` of a class looks up a global name."""
    code = getattr(plain_forward(kind), "__code__", None)
    return code is not None and name in code.co_names


def plain_forward(kind: type) -> Any:
    """Return the `forward` of a class, without decorators."""
    return inspect.unwrap(getattr(kind, "forward", None))  # type: ignore[arg-type]


def stack_path(path: str, module: nn.Module) -> tuple[str, str]:
    """Return the path of the list of layers around a module, and its role in a layer: cross, a value of AXES, or ""."""
    before, number, after = (re.split(r"\.(\d+)(?=\.|$)", path, maxsplit=1) + ["", ""])[:3]
    own = (after if number else path.rpartition(".")[2]).removeprefix(".")
    if kind_of(module) == "recurrent" or CROSS.search(f"{own} {type(module).__name__}"):
        return before, "cross"
    return before, AXES.get(own, "")


def stack_names(stacks: Mapping[str, tuple[str, str]], modules: Mapping[str, Any]) -> dict[str, str]:
    """Return the name of the stack of each path; the path of the stack where a name would stand for two."""
    names = {}
    for path, (before, role) in stacks.items():
        fallback = "decoder" if getattr(modules[path], "is_causal", False) else "encoder"
        names[path] = role or next((name for part, name in STACKS.items() if re.search(part, before)), fallback)
    shared = {name: {stacks[path] for path, own in names.items() if own == name} for name in names.values()}
    long = {path: f"{before}.{role}".removesuffix(".") for path, (before, role) in stacks.items()}
    return {path: name if len(shared[name]) == 1 else long[path] for path, name in names.items()}


def chosen_layers(layers: Sequence[AttentionLayer], wanted: Layers) -> list[AttentionLayer]:
    """Select layers: by number in every stack of tokens, or by a mapping of stacks to numbers.

    ValueError for an unknown stack, and for a number that its stack, or without a mapping the deepest, lacks.
    """
    counts, deepest = Counter(layer.stack for layer in layers), 0
    if isinstance(wanted, Mapping):
        by_stack = wanted
    else:
        by_stack, deepest = {each.stack: wanted for each in layers if each.is_of_tokens}, max(counts.values())
    for stack in by_stack.keys() - counts.keys():
        raise ValueError(f"layers names the stack {stack!r}, which is not in the model; name {', '.join(counts)}")
    chosen = {stack: choose("layers", indices, counts[stack], deepest) for stack, indices in by_stack.items()}
    return [layer for layer in layers if layer.number in chosen.get(layer.stack, ())]


def choose(name: str, indices: Indices, count: int, deepest: int = 0) -> list[int]:
    """Return indices among `count`, from 0, without those that only the `deepest` stack has; ValueError for others."""
    if indices is None or isinstance(indices, slice):
        return list(range(count)[indices or slice(None)])
    given, most = [indices] if isinstance(indices, int) else list(map(int, indices)), max(count, deepest)
    for number in given:
        if not -most <= number < most:
            raise ValueError(
                f"{name} asks for {number}, but there are {most}; name some from 0 to {most - 1}, or a slice"
            )
    return [number % count for number in given if -count <= number < count]
