"""Conversion of configs by tables of fields, with one test: there and back again must change nothing.

That test refuses a field of theirs that our words cannot hold, a word of ours that stock transformers has no
architecture for, and an unknown field. No list of unsupported settings exists, so none can be out of date.
"""

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import transformers
from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig

from ...configuration.configuration_base import QkvConfig
from .weights import Row, Rows, expanded, placed

Value = Any
Values = dict[str, Value]

# Names that describe a file or a run rather than a model, and names that earlier versions of transformers wrote.
BOOKKEEPING = frozenset(
    "transformers_version architectures dtype model_type auto_map task_specific_params tokenizer_class finetuning_task "
    "output_past torchscript pruned_heads gradient_checkpointing prefix transformers.js_config".split()
)
# Two names of one function in transformers' table of activations.
SYNONYMS = {"swish": "silu", "gelu_python": "gelu"}


def one_spelling(value: Value, theirs: object = None) -> Value:
    """Return the one name of an activation; any other value stays."""
    return SYNONYMS.get(value, value) if isinstance(value, str) else value


@dataclass(frozen=True)
class Codec:
    """A field that is spelt differently: `read(their value, all of theirs)`, `write(our value, all of ours)`.

    Both see the other fields of their part by plain names.
    """

    name: str
    read: Callable[[Value, Values], Value] = one_spelling
    write: Callable[[Value, Values], Value] = lambda value, ours: value


# Our name, `part.field` in an encoder-decoder -> theirs, or how it is spelt there.
Fields = Mapping[str, str | Codec]


def renames(names: str) -> dict[str, str]:
    """Map our names of fields to theirs: `ours=theirs`, or one name that both sides use."""
    pairs = (name.partition("=") for name in names.split())
    return {ours: theirs or ours for ours, _, theirs in pairs}


def both(values: Mapping[str, Value]) -> Values:
    """Repeat rows of a table for encoder and decoder; a `*` in their name stands for the side."""
    return {
        f"{side}.{name}": value.replace("*", side) if isinstance(value, str) else value
        for name, value in values.items()
        for side in ("encoder", "decoder")
    }


def default(name: str, other: str) -> Codec:
    """Map a field that another field stands for where it is None."""
    return Codec(name, lambda value, theirs: theirs[other] if value is None else value)


def translated(name: str, words: Mapping[object, object]) -> Codec:
    """Map a field whose words are others, theirs to ours; an unknown one of theirs stays, for the config to refuse.

    One of ours that they have not becomes the first of theirs, and is refused for it.
    """
    back, first = {ours: theirs for theirs, ours in words.items()}, next(iter(words))
    return Codec(name, lambda word, theirs: words.get(word, word), lambda word, ours: back.get(word, first))


def output_bias(name: str) -> Codec:
    """Map a switch of the biases of queries, keys and values; that of the output stays."""
    return Codec(name, lambda biased, theirs: biased or ["o_proj"], lambda biases, ours: biases is True)


# Embeddings that are multiplied by sqrt(hidden_size), or not.
SCALED = Codec(
    "scale_embedding",
    lambda scaled, theirs: (theirs.get("d_model") or theirs["hidden_size"]) ** 0.5 if scaled else 1.0,
    lambda factor, ours: factor != 1.0,
)
# Positions that are counted from the padding id + 1.
AFTER_PADDING = Codec("pad_token_id", lambda pad, theirs: pad + 1, lambda offset, ours: max(offset - 1, 0))
# Fields of every config of transformers that go over unchanged.
CARRIED = renames(
    "id2label label2id problem_type output_hidden_states output_attentions return_dict chunk_size_feed_forward"
)


@dataclass(frozen=True)
class Head:
    """A class of an architecture, by the end of its name, `theirs` where the official one, or its end, differs.

    `rows` are the weights of its head, `words` and `fields` those of its config; `prefix` stands before their names of
    the base model's weights, where it is not the architecture's; `free` are fields of ours and `inert` fields of theirs
    that this class alone does not read.
    """

    ours: str
    rows: Rows = ()
    words: Mapping[str, object] = field(default_factory=dict)
    fields: Fields = field(default_factory=dict)
    theirs: str = ""
    prefix: str | None = None
    free: str = ""
    inert: str = ""


@dataclass(frozen=True)
class Architecture:
    """One published architecture: its fields in our words, the words it never changes, its weights, its heads.

    A field that both configs have under one name, or that the `attribute_map` of theirs knows by it, needs no row.
    `free` are fields of ours, or keys in one, that weights decide or nothing reads; `inert` are fields of theirs that
    change no number of a loaded model with these heads; `assumed` are undeclared fields of old config.json files with
    their only possible value. `prefix` stands before their names of the base model's weights in a class with a head.
    """

    model_type: str
    family: type[QkvConfig]
    fields: Fields
    words: Mapping[str, object]
    rows: Rows
    heads: tuple[Head, ...]
    prefix: str = ""
    free: str = ""
    inert: str = ""
    assumed: Mapping[str, object] = field(default_factory=dict)


class Conversion:
    """An official class and ours: the names of both, the fields of their configs, and all their weights."""

    def __init__(self, architecture: Architecture, head: Head) -> None:
        self.architecture, self.head = architecture, head
        self.model_type, self.family, self.assumed = architecture.model_type, architecture.family, architecture.assumed
        self.ours = architecture.family.__name__.removesuffix("Config") + head.ours
        self.words = {**architecture.words, **head.words}
        # Stock models have no place for label smoothing, which changes no output: it is Trainer's. Clamps are in code.
        clamps = {f"{part}float16_clamp" for part in ("", "encoder.", "decoder.")}
        self.free = {"label_smoothing", *clamps, *architecture.free.split(), *head.free.split()}
        self.inert = BOOKKEEPING.union(architecture.inert.split(), head.inert.split())

    @cached_property
    def rows(self) -> list[Row]:
        """All weights; those of the head come first, and take weights from the base."""
        is_base = self.head.ours == "Model"
        prefix = ("" if is_base else self.architecture.prefix) if self.head.prefix is None else self.head.prefix
        return expanded((*self.head.rows, *placed(self.architecture.rows, "" if is_base else "model.", prefix)))

    @cached_property
    def theirs(self) -> str:
        """The name of the official class."""
        if hasattr(transformers, self.head.theirs):
            return self.head.theirs
        return self.stock.__name__.removesuffix("Config") + (self.head.theirs or self.head.ours)

    @property
    def stock(self) -> type[PreTrainedConfig]:
        """The official config class."""
        return CONFIG_MAPPING[self.model_type]

    @cached_property
    def fields(self) -> list[tuple[str, Codec]]:
        """Our name of each field, and how it is spelt there.

        A field of ours may be two of theirs: both are written, and that of the head is read.
        """
        plain = {name: theirs for name, theirs in same_names(self.family, self.stock).items() if self.is_read(theirs)}
        plain = {name: theirs for name, theirs in plain.items() if name not in self.free | self.words.keys()}
        told = CARRIED | plain | dict(self.architecture.fields)
        pairs = (*told.items(), *self.head.fields.items())
        return [(ours, Codec(theirs) if isinstance(theirs, str) else theirs) for ours, theirs in pairs]

    def is_read(self, name: str) -> bool:
        """Return whether a field of theirs, or of a part of it, may change a number."""
        return self.inert.isdisjoint((name, name.partition(".")[0], name.rpartition(".")[2]))

    def read(self, config: PreTrainedConfig) -> QkvConfig:
        """Translate an official config to ours."""
        theirs = flat(config)
        values = {
            name: codec.read(theirs.get(codec.name), seen_from(theirs, codec.name)) for name, codec in self.fields
        }
        return self.family(**nested({**values, **self.words}, self.family.sub_configs))

    def write(self, config: QkvConfig) -> PreTrainedConfig:
        """Translate our config to the official one."""
        return AutoConfig.for_model(self.model_type, **self.written(config))

    def written(self, config: QkvConfig) -> Values:
        """Return the fields of the official config."""
        # No stock config says to what frequencies are rounded.
        ours = without(flat(config), {"inv_freq_dtype"})
        values = {codec.name: codec.write(ours.get(name), seen_from(ours, name)) for name, codec in self.fields}
        return nested(values, self.stock.sub_configs)

    def lost_on_reading(self, config: PreTrainedConfig) -> list[str]:
        """List the fields that reading this config would change; a field left None stands for whatever it becomes."""
        values = {name: value for name, value in flat(config).items() if value is not None and self.is_read(name)}
        return different(values, {**self.assumed, **flat(self.write(self.read(config)))})

    def contradicts(self, ours: Values) -> bool:
        """Return whether fields of ours, of a flat config, are other words than its own."""
        return any(ours.get(name, word) != word for name, word in without(self.words, self.free).items())

    def lost_on_writing(self, config: QkvConfig) -> list[str]:
        """List the fields that writing this config as theirs would change; what a part repeats is the whole's."""
        ours, again = flat(config), flat(self.read(self.write(config)))
        parts = {name: name.rpartition(".")[2] for name in ours}
        judged = [name for name, key in parts.items() if key not in BOOKKEEPING and (key == name or key not in ours)]
        return different(*(without(each, self.free) for each in ({name: ours[name] for name in judged}, again)))


def same_names(ours: type[QkvConfig], theirs: type[PreTrainedConfig]) -> dict[str, str]:
    """Map the fields of our config, and of its parts, that an official one declares under the same name."""
    known = declared(theirs) - declared(PreTrainedConfig)
    pairs = {name: theirs.attribute_map.get(name, name) for name in declared(ours) - ours.sub_configs.keys()}
    same = {name: other for name, other in pairs.items() if other in known}
    for part, config_class in ours.sub_configs.items():
        if part in theirs.sub_configs:
            inner = same_names(config_class, theirs.sub_configs[part])
            same |= {f"{part}.{name}": f"{part}.{other}" for name, other in inner.items()}
        else:
            same |= {f"{part}.{name}": name for name in declared(config_class) - declared(ours) if name in known}
    return same


def declared(config_class: type[PreTrainedConfig]) -> set[str]:
    """Return the names of a config's fields."""
    return {each.name for each in fields(config_class)}


def seen_from(values: Values, name: str) -> Values:
    """Return all fields as a field of a part sees them: those of its part by plain names, too."""
    part = name.rpartition(".")[0]
    return values | {key.removeprefix(f"{part}."): values[key] for key in values if part and key.startswith(f"{part}.")}


def flat(config: PreTrainedConfig) -> Values:
    """Return all fields of a config; those of a part under `part.field`, of a part in it under `part.part.field`."""
    values: Values = {}
    own, parts = vars(config), config.sub_configs
    unsaved = {name: own[name] for name in declared(type(config)) & own.keys()}
    for name, value in (unsaved | config.to_dict()).items():
        if name not in own:  # a field of a part, repeated for other programs
            continue
        part = getattr(config, name) if name in parts else None
        inner = {"model_type": part.model_type, **flat(part)} if isinstance(part, PreTrainedConfig) else {}
        values |= {f"{name}.{key}": item for key, item in inner.items()} or {name: value}
    for name in values:
        words = values[name] if name.rpartition(".")[2] in ("pattern", "position", "feed_forward", "kernel") else None
        if isinstance(words, list) and len(set(words)) == 1:
            values[name] = words[0]  # said at length
    return values


def nested(values: Mapping[str, object], parts: Collection[str]) -> Values:
    """Group the fields of parts again: the inverse of `flat`."""
    result: Values = {name: {} for name in parts}
    for name, value in values.items():
        *path, key = name.split(".")
        part = result
        for each in path:
            part = part.setdefault(each, {})
        part[key] = copy.deepcopy(value)
    return result


def without(values: Values, names: Collection[str]) -> Values:
    """Return the fields of a config without these, and dicts in them without these keys."""
    kept = {name: value for name, value in values.items() if name not in names}
    return {name: without(value, names) if isinstance(value, dict) else value for name, value in kept.items()}


def different(values: Values, again: Values) -> list[str]:
    """List the fields whose value changed."""
    return [
        f"{name}={value!r} would become {again[name]!r}" if name in again else f"{name}={value!r} is unknown there"
        for name, value in values.items()
        if canonical(value) != canonical(again.get(name)) and not name.startswith("_")
    ]


def canonical(value: object) -> object:
    """Spell equal values alike: (n, n) is n, an activation has one name, a whole rotation is not partial."""
    if isinstance(value, dict):
        return {name: item for name, item in value.items() if (name, item) != ("partial_rotary_factor", 1.0)}
    sides = set(value) if isinstance(value, list | tuple) and all(isinstance(side, int) for side in value) else ()
    return sides.pop() if len(sides) == 1 else list(value) if isinstance(value, tuple) else one_spelling(value)
