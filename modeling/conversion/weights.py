"""Conversion of tensors between two layouts: rows of names, each with the changes between them, readable both ways.

A row is (our names, their names, changes…). `*` stands for a layer's number, `**` for any names, `{a,b}` for several,
`#` for as many numbers as there are, and a name of a module for its weight and bias. Without changes each of several
names is renamed by itself; changes are of all of them together, in the order written when reading theirs, and backwards
when writing. A change that needs a size says it, or where our config has it: `split
num_attention_heads`. `weights.yaml` has the rows.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import torch
import yaml
from torch import Tensor, nn

from ...configuration.configuration_base import QkvConfig
from ...configuration.presets import LOADER

# Rows as tables have them.
Rows = tuple[tuple[str, ...], ...]
Weights = dict[str, Tensor]
# (tensors, number of names they become, sizes…) -> tensors
Change = Callable[..., list[Tensor]]


def read_rows(path: Path) -> dict[str, Rows]:
    """Read tables of rows by name: columns are two spaces or more apart, and `-` is no name."""
    tables: dict[str, str] = yaml.load(path.read_text(encoding="utf-8"), LOADER)
    lines = {name: [re.split("  +", line) for line in table.splitlines()] for name, table in tables.items()}
    return {name: tuple(tuple(part.strip("-") for part in row) for row in rows) for name, rows in lines.items()}


ROWS = read_rows(Path(__file__).with_suffix(".yaml"))


class Row(NamedTuple):
    """Our names and theirs, and the changes between the tensors of the one and the other."""

    ours: list[str]
    theirs: list[str]
    changes: list[str]


def split(tensors: list[Tensor], count: int, groups: int = 1) -> list[Tensor]:
    """Split one fused projection into parts of one size, which in some interleave by head."""
    return [part.flatten(0, 1) for part in tensors[0].unflatten(0, (groups, count, -1)).unbind(1)]


def fuse(tensors: list[Tensor], count: int, groups: int = 1) -> list[Tensor]:
    """Fuse parts into one projection."""
    return [torch.stack([tensor.unflatten(0, (groups, -1)) for tensor in tensors], dim=1).flatten(0, 2)]


def split_groups(tensors: list[Tensor], count: int, *sizes: int) -> list[Tensor]:
    """Split one projection into parts of these sizes, of which each of the groups, the last number, has a share."""
    *totals, groups = sizes
    parts = [total // groups for total in totals]
    split = tensors[0].unflatten(0, (groups, sum(parts), -1)).split(parts, dim=1)
    return [part.flatten(0, 2) for part in split]


def fuse_groups(tensors: list[Tensor], count: int, *sizes: int) -> list[Tensor]:
    """Fuse parts group by group."""
    *totals, groups = sizes
    parts = [part.unflatten(0, (groups, total // groups, -1)) for part, total in zip(tensors, totals, strict=True)]
    return [torch.cat(parts, dim=1).flatten(0, 2)]


def join_first(tensors: list[Tensor], count: int, *sizes: int) -> list[Tensor]:
    """Join all parts but the last, which have these sizes."""
    return [torch.cat(tensors[:-1]), tensors[-1]]


def part_first(tensors: list[Tensor], count: int, *sizes: int) -> list[Tensor]:
    """Take parts of these sizes apart again."""
    return [*tensors[0].split(sizes), tensors[1]]


def turned_pairs(tensor: Tensor, dim: int, rotated: int, *, apart: bool) -> Tensor:
    """Put first components of pairs before second ones, (0, 1, 2, 3) -> (0, 2, 1, 3), or backwards beside each other.

    Those that are rotated come first in the dimension.
    """
    first, rest = tensor.tensor_split([rotated], dim)
    first = first.unflatten(dim, (-1, 2) if apart else (2, -1)).transpose(dim, dim + 1).flatten(dim, dim + 1)
    return torch.cat((first, rest), dim=dim)


def turn_heads(tensors: list[Tensor], count: int, size: int, rotated: int, *, apart: bool) -> list[Tensor]:
    """Turn the pairs of each head of projections: (H * K, ...) -> same."""
    heads = (tensor.unflatten(0, (-1, size)) for tensor in tensors)
    return [turned_pairs(each, 1, rotated, apart=apart).flatten(0, 1) for each in heads]


def turn_gains(tensors: list[Tensor], count: int, rotated: int, *, apart: bool) -> list[Tensor]:
    """Turn the pairs in tensors whose last axis is a head's: (H, K) -> (H, K)."""
    return [turned_pairs(tensor, 1, rotated, apart=apart) for tensor in tensors]


def turn_all(tensors: list[Tensor], count: int, *, apart: bool) -> list[Tensor]:
    """Turn all pairs of the last dimension."""
    return [turned_pairs(tensor, tensor.ndim - 1, tensor.shape[-1], apart=apart) for tensor in tensors]


def split_codegen(tensors: list[Tensor], count: int, size: int, rotated: int) -> list[Tensor]:
    """Split CodeGen's projection, a quarter for each core that trained it: queries, values and keys."""
    query, value, key = (part.flatten(0, 1) for part in tensors[0].unflatten(0, (4, 3, -1)).unbind(1))
    return [*turn_heads([query, key], 2, size, rotated, apart=True), value]


def fuse_codegen(tensors: list[Tensor], count: int, size: int, rotated: int) -> list[Tensor]:
    """Fuse CodeGen's projection."""
    query, key = turn_heads(tensors[:2], 2, size, rotated, apart=False)
    return fuse([query, tensors[2], key], 1, 4)


def swap_halves(tensors: list[Tensor], count: int, size: int) -> list[Tensor]:
    """Exchange the halves of each head, which then rotates the other way."""
    return [tensor.unflatten(0, (-1, 2, size // 2)).flip(1).flatten(0, 2) for tensor in tensors]


def drop_zeros(tensors: list[Tensor], count: int) -> list[Tensor]:
    """Drop a bias that theirs has not, after checking that it adds nothing."""
    if tensors[1].any():
        raise ValueError("a bias of norms is not zero, where stock has none; it was changed in training")
    return tensors[:1]


def drop_sinusoids(tensors: list[Tensor], count: int) -> list[Tensor]:
    """Drop a table that a formula gives, after checking that it is the formula's."""
    rows, width = tensors[0].shape
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
    angles = torch.arange(rows)[:, None] / 10000.0**exponents
    table = torch.cat((angles.sin(), angles.cos()), dim=-1)
    precision = 1e-2 if tensors[0].element_size() < 4 else 1e-5
    if not torch.allclose(tensors[0].detach().cpu().double(), table, atol=precision):
        raise ValueError("embed_positions is not the sinusoidal table its architecture has; it was changed in training")
    return []


def each(change: Callable[[Tensor], Tensor]) -> Change:
    """Apply a change to every tensor."""
    return lambda tensors, count: [change(tensor) for tensor in tensors]


def keep(tensors: list[Tensor], count: int) -> list[Tensor]:
    """Change nothing."""
    return tensors


def transposed(tensor: Tensor) -> Tensor:
    """Exchange inputs and outputs, of each expert where a tensor has several; biases stay."""
    return tensor.transpose(-1, -2) if tensor.ndim > 1 else tensor


def of_pairs(turn: Change) -> tuple[Change, Change]:
    """Put the components of pairs apart when reading theirs, and together when writing."""
    return partial(turn, apart=True), partial(turn, apart=False)


TRANSPOSE, LOWER, LIFT = each(transposed), each(lambda tensor: tensor[0]), each(lambda tensor: tensor[None])
# The change when reading theirs, and its inverse when writing.
CHANGES: dict[str, tuple[Change, Change]] = {
    # GPT-2's Conv1D has inputs first; biases stay.
    "transpose": (TRANSPOSE, TRANSPOSE),
    # A gate and the units it scales, in turn.
    "deinterleave": of_pairs(turn_all),
    "split": (split, fuse),
    # Sizes of the parts, or numbers of their heads, and the number of groups.
    "groups": (split_groups, fuse_groups),
    "join": (join_first, part_first),
    # Width of a head, and of its part that is rotated.
    "interleave": of_pairs(turn_heads),
    # Of gains of each head; and in a projection that is split, too.
    "interleave_each": of_pairs(turn_gains),
    "codegen": (split_codegen, fuse_codegen),
    "swap": (swap_halves, swap_halves),
    # Several names of theirs for one tensor.
    "tie": (lambda tensors, count: tensors[:1], lambda tensors, count: tensors * count),
    # A leading axis of one, theirs or ours.
    "lead": (LOWER, LIFT),
    "widen": (LIFT, LOWER),
    # A tensor of each head, theirs.
    "stack": (lambda tensors, count: [torch.stack(tensors)], lambda tensors, count: [*tensors[0].unbind()]),
    # A bias that theirs has not.
    "zeros": (lambda tensors, count: [tensors[0], torch.zeros_like(tensors[0])], drop_zeros),
    # A buffer of zeros needs no parameter.
    "optional": (lambda tensors, count: [tensor for tensor in tensors if tensor.any()], keep),
    "sinusoids": (drop_sinusoids, keep),
    # Nothing reads it.
    "unread": (lambda tensors, count: [], keep),
    # The row holds only where there is the first of its names.
    "together": (keep, keep),
}


def placed(rows: Rows, ours: str, theirs: str) -> Rows:
    """Put the prefixes of a part before its names."""
    return tuple((one and ours + one, other and theirs + other, *changes) for one, other, *changes in rows)


def expanded(rows: Rows) -> list[Row]:
    """Write out the braces of rows; a row without changes becomes one for each name."""
    result: list[Row] = []
    for ours, theirs, *changes in rows:
        row = Row(alternatives(ours), alternatives(theirs), changes)
        pairs = zip(row.ours, row.theirs, strict=True) if not changes else ()
        result += [row] if changes else [Row([one], [other], []) for one, other in pairs]
    return result


def alternatives(names: str) -> list[str]:
    """Expand braces, the first ones outermost: `{a,b}.{c,d}` -> a.c, a.d, b.c, b.d; the empty name -> none."""
    braces = re.fullmatch(r"(.*?)\{(.*?)\}(.*)", names)
    if braces is None:
        return [names] * bool(names)
    return [f"{braces[1]}{name}{rest}" for name in braces[2].split(",") for rest in alternatives(braces[3]) or [""]]


def occurrences(name: str, weights: Mapping[str, Tensor]) -> Iterator[tuple[list[str], str]]:
    """Yield (the parts that wildcards stand for, suffix) of each key that a name stands for."""
    pattern = re.escape(name).replace(r"\*\*", "(.+)").replace(r"\*", r"(\d+)")
    for key in weights:
        if match := re.fullmatch(rf"{pattern}(|\.weight|\.bias)", key):
            *parts, suffix = match.groups()
            yield parts, suffix


def numbered(names: list[str], count: int) -> list[str]:
    """Write out names with a `#` by numbers from 0 on; others stay."""
    return [name.replace("#", str(number)) for name in names for number in range(count if "#" in name else 1)]


def spelt(name: str, parts: list[str], suffix: str) -> str:
    """Put parts in the places of wildcards."""
    left = iter(parts)
    return re.sub(r"\*\*?", lambda match: next(left), name) + suffix


def convert(rows: Iterable[Row], weights: Weights, config: QkvConfig | None = None, *, reading: bool) -> Weights:
    """Rename and reshape all weights, to sizes that our config tells; a weight that no row knows is an error."""
    left, converted = dict(weights), Weights()
    for ours, theirs, changes in rows:
        old, new = (theirs, ours) if reading else (ours, theirs)
        for parts, suffix in occurrences(old[0].replace("#", "0"), weights) if old else ():
            keys = [spelt(name, parts, suffix) for name in numbered(old, len(weights))]
            tensors = [left.pop(key) for key in keys if key in left]  # none where an earlier row has taken them
            for change in (changes if reading else reversed(changes)) if tensors else ():
                word, *fields = change.split()
                sizes = [int(field) if field.isdigit() else attrgetter(field)(config) for field in fields]
                tensors = CHANGES[word][0 if reading else 1](tensors, len(new), *sizes)
            names = (spelt(name, parts, suffix) for name in numbered(new, len(tensors)))
            converted |= zip(names, tensors, strict=False)
    if left:
        raise ValueError(f"weight {min(left)!r} has no counterpart; convert the plain architecture without additions")
    return converted


def owned(weights: Weights, model: nn.Module, *, copies: bool) -> Weights:
    """Copy tensors that share memory with anything outside; names for one tensor keep sharing it.

    Without `copies` the model they come from is emptied and each tensor let go as soon as it has been changed, so that
    two whole copies never exist.
    """
    tensors: dict[int, tuple[Tensor, list[str]]] = {}
    for name, weight in weights.items():
        if weight.is_meta:
            raise ValueError(f"{name} is on the meta device; load the whole model into memory to convert it")
        tensors.setdefault(id(weight), (weight.detach(), []))[1].append(name)
    if not copies:
        weights.clear()
        for held in model.state_dict(keep_vars=True).values():
            held.data = held.new_empty(0)
    result = Weights()
    for key in list(tensors):
        tensor, names = tensors.pop(key)
        alone = tensor.untyped_storage().nbytes() == tensor.nbytes and tensor.is_contiguous()
        kept = tensor.clone(memory_format=torch.contiguous_format) if copies or not alone else tensor
        result |= dict.fromkeys(names, kept)
    return result
