"""Architectures as tables: one YAML file, whose tags are codecs in Python.

An entry of a group has the fields of an `Architecture` under the type of its model, or another name beside a
`model_type`; what entries share stands under `shared`. `rows` are names of tables in `weights.yaml`, `name@part` where
ours are those of a part; `heads` are names in Python, or what differs from a head that they are `like`; `free` and
`inert` may be lists. `both.name` among fields and words is of encoder and decoder. A tag `!NAME` is the codec of that
name or, before a list or a mapping, a function that makes one of them. `halves` are entries that `dual` of the module
joins with this one. What several files share stands in `tables.yaml`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from ...configuration.configuration_base import model_configs
from ...configuration.presets import LOADER
from .config import AFTER_PADDING, SCALED, Architecture, Head, Values, both, default, translated
from .weights import ROWS, Rows, placed

Group = dict[str, Architecture]
# Names that every table may use.
COMMON: Values = {"AFTER_PADDING": AFTER_PADDING, "SCALED": SCALED, "default": default, "translated": translated}
# Read before each file, for its anchors.
ANCHORS = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
FAMILIES = {family.__name__: family for family in model_configs()}


def read_architectures(path: Path, names: Mapping[str, Any]) -> dict[str, Group]:
    """Read groups of architectures, in the order of the file, with the codecs and heads of a module."""

    def construct(loader: Any, name: str, node: yaml.Node) -> Any:
        codec: Any = {**COMMON, **names}[name]
        if isinstance(node, yaml.MappingNode):
            return codec(**loader.construct_mapping(node, deep=True))
        return codec(*loader.construct_sequence(node)) if isinstance(node, yaml.SequenceNode) else codec

    loader: Any = type("Loader", (LOADER,), {})
    loader.add_multi_constructor("!", construct)
    groups: dict[str, dict[str, Values]] = yaml.load(ANCHORS + path.read_text(encoding="utf-8"), loader)
    return {
        group: {name: architecture({"model_type": name, **entry}, names) for name, entry in entries.items()}
        for group, entries in groups.items()
        if group not in ("common", "shared")
    }


def architecture(entry: Values, names: Mapping[str, Any]) -> Architecture:
    """Make an architecture of its entry, joined with its halves where it has them."""
    if "halves" in entry:
        rest = {name: value for name, value in entry.items() if name != "halves"}
        whole, *halves = (architecture({"model_type": "", **each}, names) for each in (rest, *entry["halves"]))
        dual: Callable[..., Architecture] = names["dual"]
        return dual(whole, *halves)
    joined = {name: " ".join(entry[name]) for name in ("free", "inert") if isinstance(entry.get(name), list)}
    told = {name: of_both_sides(entry[name]) for name in ("fields", "words")}
    made = {"family": FAMILIES[entry["family"]], "rows": rows_of(entry["rows"])}
    return Architecture(**{**entry, **joined, **told, **made, "heads": tuple(read_heads(entry["heads"], names))})


def read_heads(told: str | list[str | Values], names: Mapping[str, Any]) -> Iterator[Head]:
    """Yield heads by name, and heads like one of that name with other fields."""
    for each in [told] if isinstance(told, str) else told:
        if isinstance(each, dict):
            others = {name: value for name, value in each.items() if name not in ("like", "rows")}
            yield replace(names[each["like"]], **others, **({"rows": rows_of(each["rows"])} if "rows" in each else {}))
        else:
            for name in each.split():
                yield from [names[name]] if isinstance(names[name], Head) else names[name]


def rows_of(tables: str) -> Rows:
    """Join tables of rows; of `name@part` our names stand behind those of a part."""
    rows: Rows = ()
    for name in tables.split():
        table, _, part = name.partition("@")
        rows += placed(ROWS[table], f"{part}.", "") if part else ROWS[table]
    return rows


def of_both_sides(values: Values) -> Values:
    """Write out `both.name` for encoder and decoder."""
    shared = {name.removeprefix("both."): value for name, value in values.items() if name.startswith("both.")}
    return both(shared) | {name: value for name, value in values.items() if not name.startswith("both.")}
