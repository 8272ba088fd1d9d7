"""Count the parameters, FLOPs and output shapes of every module of a model, without its weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from qkv.scripts.planning.fake_tensors import data_independent
from qkv.scripts.planning.planned_model import PlannedModel
from qkv.scripts.planning.simulate import FLOPS, fake_model

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Node:
    """A module: its weights and the shape of its output for one example, the sums of all below it, and its parts.

    `times` is how often it stands there in a row. A tensor that stands in several modules is `tied` but in the first.
    """

    name: str
    kind: str
    weight: Shape | None
    output: Shape | None
    parameters: int
    flops: int
    tied: bool = False
    times: int = 1
    children: tuple[Node, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True for what neither has weights nor computes products, such as dropout or an identity."""
        return not (self.parameters or self.flops or self.tied)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        names = ("name", "kind", "weight", "output", "parameters", "flops", "tied", "times")
        own = {name: getattr(self, name) for name in names}
        return own | {"children": [child.as_json() for child in self.children]}


@dataclass
class Measured:
    """FLOPs and shapes of outputs of a forward, by the names of modules."""

    flops: dict[str, int]
    outputs: dict[str, Shape] = field(default_factory=dict)


def count_costs(planned: PlannedModel) -> Node:
    """Count the costs of a model: a forward of one example runs on fake tensors.

    Every layer is computed at every token, as in papers: the hooks that look at outputs keep the last layer from those
    alone that a head reads, which is what trainings and `qkv plan` compute.
    """
    with FakeTensorMode(), data_independent(), torch.no_grad():
        model = fake_model(planned, fused=True)
        model.tie_weights()
        model.eval()
        measured = measure_forward(model, planned.inputs(1))
    seen: set[int] = set()
    return node(model, "", type(model).__name__, measured, seen)


def measure_forward(model: nn.Module, inputs: dict[str, Any]) -> Measured:
    """Run a forward, and return what it tells."""
    measured = Measured({})
    hooks = [
        module.register_forward_hook(lambda module, given, output, name=name: note(measured, name, output))
        for name, module in model.named_modules()
    ]
    with FlopCounterMode(display=False, custom_mapping=FLOPS) as counter:
        model(**inputs)
    for hook in hooks:
        hook.remove()
    root = type(model).__name__
    for place, by_operator in counter.get_flop_counts().items():
        if place == root or place.startswith(f"{root}."):
            measured.flops[place.removeprefix(root).removeprefix(".")] = sum(by_operator.values())
    return measured


def note(measured: Measured, name: str, output: object) -> None:
    """Note the shape of the first tensor that a module returns."""
    first = next((leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.ndim > 1), None)
    if first is not None:
        measured.outputs[name] = tuple(first.shape[1:])


def node(module: nn.Module, path: str, name: str, measured: Measured, seen: set[int]) -> Node:
    """Return the node of a module; parameters that were `seen` before count as tied."""
    own = list(module.parameters(recurse=False))
    fresh = [weight for weight in own if id(weight) not in seen]
    seen.update(map(id, own))
    below = [
        node(child, f"{path}.{part}".removeprefix("."), part, measured, seen) for part, child in module.named_children()
    ]
    children = tuple(merged(child for child in unfolded(below) if not child.is_empty))
    total = sum(weight.numel() for weight in fresh) + sum(child.parameters for child in below)
    matrix = max(own, key=lambda weight: (weight.ndim, weight.numel()), default=None)
    return Node(
        name,
        type(module).__name__,
        tuple(matrix.shape) if matrix is not None else None,
        measured.outputs.get(path),
        total,
        measured.flops.get(path, 0),
        tied=len(fresh) < len(own),
        children=children,
    )


def unfolded(nodes: Iterable[Node]) -> Iterator[Node]:
    """Put the members of lists in their place, and what is alone in a module without weights in its place."""
    for one in nodes:
        if one.kind == "ModuleList":
            yield from (replace(child, name=f"{one.name}.{child.name}") for child in one.children)
        elif len(one.children) == 1 and one.weight is None and one.children[0].times == 1 and holds_no_more(one):
            yield replace(one.children[0], name=f"{one.name}.{one.children[0].name}")
        else:
            yield one


def holds_no_more(one: Node) -> bool:
    """Return whether a module computes nothing beside its only child."""
    return one.flops == one.children[0].flops and one.parameters == one.children[0].parameters


def merged(nodes: Iterable[Node]) -> Iterator[Node]:
    """Merge equal modules in a row, as layers are, into one that stands there several times."""
    last: Node | None = None
    for one in nodes:
        if last is not None and alike(last, one):
            last = replace(last, times=last.times + one.times)
            continue
        if last is not None:
            yield last
        last = one
    if last is not None:
        yield last


def alike(one: Node, other: Node) -> bool:
    """Return whether two modules differ in nothing but their numbers."""
    return numbered(one.name) == numbered(other.name) and replace(one, name="", times=1) == replace(
        other, name="", times=1
    )


def numbered(name: str) -> str | None:
    """Return the name of a list whose member this is; names that are no members are like no other."""
    head, _, number = name.partition(".")
    return head + number.lstrip("0123456789") if number[:1].isdigit() else name if not name.isdigit() else ""
