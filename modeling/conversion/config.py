"""Conversion of configs by tables of fields, with one test: there and back again must change nothing.

That test is what refuses: a field of theirs that our words cannot hold, a word of ours that stock transformers has no
architecture for, an unknown field. No list of unsupported settings exists, so none can be out of date.
"""

import copy
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig

from ...configuration.configuration_base import QkvConfig
from ...configuration.configuration_pattern import CACHE_LAYER_TYPES
from ..base import QkvPreTrainedModel
from .weights import Row

Values = dict[str, Any]

# What every config carries over unchanged.
CARRIED = "id2label label2id problem_type output_hidden_states output_attentions return_dict chunk_size_feed_forward"
# Names that describe a file or a run rather than a model, and what earlier versions of transformers wrote beside them.
BOOKKEEPING = frozenset(
    "transformers_version architectures dtype model_type auto_map task_specific_params tokenizer_class finetuning_task "
    "output_past torchscript pruned_heads gradient_checkpointing prefix transformers.js_config".split()
)
# Two names of one function in transformers' table of activations.
SYNONYMS = {"swish": "silu", "gelu_python": "gelu"}
# A field of ours that says nothing unless another has one of certain values.
MATTERS_WITH = {
    "block_size": ("pattern", "block_sparse random strided fixed"),
    "dilation": ("pattern", "dilated"),
    "fixed_columns": ("pattern", "fixed"),
    **dict.fromkeys(("num_random_blocks", "random_blocks_seed"), ("pattern", "random")),
    "feature_map": ("kernel", "linear"),
    "grid_kernel": ("pattern", "convolutional"),
    **dict.fromkeys(("text_length", "grid_columns"), ("position", "grid")),
    "sliding_window": ("pattern", "sliding dilated"),
    "num_global_tokens": ("pattern", " ".join(word for word in CACHE_LAYER_TYPES if word != "full")),
    "relative_attention_num_buckets": ("position", "t5"),
    "relative_attention_max_distance": ("position", "t5"),
    "position_offset": ("position", "learned sinusoidal sinusoidal_concat sinusoidal_t2t"),
    "rope_parameters": ("position", "rope"),
    "pooling_dropout": ("pooling", "dense"),
    "median_filter_width": ("transcription", "long_form"),
}
# A field of ours that only some classes read, by the ends of their names.
CLASSIFIERS = ("Classification", "ForMultipleChoice")
TRANSFORMING = ("ForMaskedLM", "ForPreTraining", "ForReplacedTokenDetection")
POOLING = ("Model", "ForSequenceClassification", "ForImageClassification", "ForMultipleChoice", "ForPreTraining")
READ_BY = {
    "pooling": POOLING,
    "pooling_dropout": POOLING,
    "head_transform": (*CLASSIFIERS, "ForQuestionAnswering"),
    "classifier_dropout": CLASSIFIERS,
    "qa_dropout": ("ForQuestionAnswering",),
    "lm_head_bias": ("ForMaskedLM", "ForPreTraining", "ForCausalLM"),
    "mask_token": ("Model", "ForImageClassification"),
}
# What a part is not asked, beside what the whole says itself.
UNASKED = frozenset({"encoder.pooling"})


@dataclass(frozen=True)
class Codec:
    """A field that is spelt differently: `read(their value, all of theirs)`, `write(our value, all of ours)`."""

    name: str
    read: Callable[[Any, Values], Any] = lambda value, theirs: value
    write: Callable[[Any, Values], Any] = lambda value, ours: value


# Positions that are counted from the padding id + 1.
AFTER_PADDING = Codec("pad_token_id", lambda pad, theirs: pad + 1, lambda offset, ours: max(offset - 1, 0))
# A base model has nothing before its names.
BASE = ("", "")
# Our name, `part.field` in an encoder-decoder -> theirs, or how it is spelt there.
Fields = Mapping[str, str | Codec]
Value = TypeVar("Value")


@dataclass(frozen=True)
class Head:
    """A class of ours, the same class of theirs, what our config says for it, and the weights that are its own."""

    ours: type[QkvPreTrainedModel]
    theirs: str
    rows: tuple[Row, ...] = ()
    words: Mapping[str, object] = field(default_factory=dict)
    fields: Fields = field(default_factory=dict)
    # For base models, which come with and without a pooler: whether this one has it.
    pooler: bool | None = None
    # What stands before the names of the base model, ours and theirs, where it is not the architecture's.
    prefixes: tuple[str, str] | None = None
    # Fields of theirs that this class alone does not read.
    inert: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Architecture:
    """One published architecture: its fields in our words, the words it never changes, its weights, its heads.

    `free` are fields of ours, or keys in one, that the weights decide; `inert` are fields of theirs that change no
    number of a loaded model with these heads; `assumed` are undeclared fields of old config.json files with the only
    value that is meant.
    """

    model_type: str
    family: type[QkvConfig]
    fields: Fields
    words: Mapping[str, object]
    rows: tuple[Row, ...]
    heads: tuple[Head, ...]
    prefixes: tuple[str, str] = ("model.", "")
    free: frozenset[str] = frozenset()
    inert: frozenset[str] = frozenset()
    assumed: Mapping[str, object] = field(default_factory=dict)


def same(names: str) -> dict[str, str]:
    """Map fields that both sides call alike."""
    return {name: name for name in names.split()}


def both(values: Mapping[str, Value]) -> dict[str, Value]:
    """Repeat rows of a table for encoder and decoder."""
    return {f"{side}.{name}": value for name, value in values.items() for side in ("encoder", "decoder")}


def activation(name: str) -> Codec:
    """Map a field that names an activation, under any of its names."""
    return Codec(name, read=lambda value, theirs: SYNONYMS.get(value, value))


def flat(config: PreTrainedConfig) -> Values:
    """Return all fields of a config; those of a part under `part.field`."""
    values: Values = {}
    own, parts = vars(config), config.sub_configs
    for name, value in config.to_dict().items():
        if name not in own:  # said of a part, for other programs
            continue
        inner = value if name in parts and value else {}
        values |= {f"{name}.{key}": item for key, item in inner.items()} or {name: value}
    for prefix in ("", *(f"{part}." for part in parts)):
        patterns = values.get(f"{prefix}pattern")
        if isinstance(patterns, list) and len(set(patterns)) == 1:  # the same pattern in every layer, said at length
            values[f"{prefix}pattern"] = patterns[0]
    return values


def without(values: Values, names: Collection[str]) -> Values:
    """Return the fields of a config without these, and dicts in them without these keys."""
    kept = {name: value for name, value in values.items() if name not in names}
    return {name: without(value, names) if isinstance(value, dict) else value for name, value in kept.items()}


def nested(values: Mapping[str, object], parts: Mapping[str, object]) -> Values:
    """Group the fields of parts again: the inverse of `flat`."""
    result: Values = {name: {} for name in parts}
    for name, value in values.items():
        part, _, key = name.rpartition(".")
        (result[part] if part else result)[key] = copy.deepcopy(value)
    return result


def rows_of(architecture: Architecture, head: Head) -> Iterator[tuple[str, Codec]]:
    """Yield every field of the table, plain names as codecs that change nothing."""
    for ours, theirs in (*same(CARRIED).items(), *architecture.fields.items(), *head.fields.items()):
        yield ours, theirs if isinstance(theirs, Codec) else Codec(theirs)


def read_config(architecture: Architecture, head: Head, config: PreTrainedConfig) -> QkvConfig:
    """Translate an official config to ours."""
    theirs = flat(config)
    values = {ours: codec.read(theirs.get(codec.name), theirs) for ours, codec in rows_of(architecture, head)}
    return architecture.family(
        **nested({**values, **architecture.words, **head.words}, architecture.family.sub_configs)
    )


def write_config(architecture: Architecture, head: Head, config: QkvConfig) -> PreTrainedConfig:
    """Translate our config to the official one."""
    # No stock config says to what frequencies are rounded.
    ours = without(flat(config), {"inv_freq_dtype"})
    values = {codec.name: codec.write(ours.get(name), ours) for name, codec in rows_of(architecture, head)}
    parts = CONFIG_MAPPING[architecture.model_type].sub_configs_defaults
    return AutoConfig.for_model(architecture.model_type, **nested(values, parts))


def lost_on_reading(architecture: Architecture, head: Head, config: PreTrainedConfig) -> list[str]:
    """List what reading this config would change; a field left None stands for whatever it becomes."""
    again = flat(write_config(architecture, head, read_config(architecture, head, config)))
    skipped = architecture.inert | head.inert
    values = {
        name: value
        for name, value in flat(config).items()
        if value is not None and not {name, name.partition(".")[0], name.rpartition(".")[2]} & (skipped | BOOKKEEPING)
    }
    return different(values, {**architecture.assumed, **again})


def lost_on_writing(architecture: Architecture, head: Head, config: QkvConfig) -> list[str]:
    """List what writing this config as theirs would change."""
    ours, again = flat(config), flat(read_config(architecture, head, write_config(architecture, head, config)))
    # Stock models have no place for label smoothing, which changes no output: it is Trainer's label_smoothing_factor.
    free = architecture.free | unread(head, ours) | {"label_smoothing"}
    if len(defaults := default_activations(head, ours)) == 1:
        for values in (ours, again):
            values["head_act"] = values["head_act"] or values.get(defaults[0], defaults[0])
    return different(without({name: ours[name] for name in ours if matters(name, ours)}, free), again)


def unread(head: Head, ours: Values) -> set[str]:
    """Return the fields of ours that a class does not read."""
    name = head.ours.__name__
    fields = {field for field, ends in READ_BY.items() if not name.endswith(ends)}
    fields |= {"pooling", "pooling_dropout"} if head.pooler is False else set()
    return fields | (set() if default_activations(head, ours) else {"head_act", "head_bias"})


def default_activations(head: Head, ours: Values) -> list[str]:
    """List the activations that `head_act=None` stands for in each part of a class, or the fields that name them."""
    name = head.ours.__name__
    pools = name.endswith(POOLING) and head.pooler is not False and ours.get("pooling") == "dense"
    transforms = ours.get("head_transform", False) and name.endswith(READ_BY["head_transform"])
    return ["tanh"] * pools + ["hidden_act"] * (transforms or name.endswith(TRANSFORMING))


def different(values: Values, again: Values) -> list[str]:
    """List the fields whose value changed."""
    return [
        f"{name}={value!r} would become {again[name]!r}" if name in again else f"{name}={value!r} is unknown there"
        for name, value in values.items()
        if canonical(value) != canonical(again.get(name)) and not name.startswith("_")
    ]


# Their names for layers of the patterns they have.
LAYER_TYPES = {word: CACHE_LAYER_TYPES[word] for word in ("full", "sliding")}
PATTERNS = {layer_type: word for word, layer_type in LAYER_TYPES.items()}


def our_pattern(types: list[str]) -> str | list[str]:
    """Name their layer types in our words, one where all are alike; an unknown one stays, for the config to check."""
    words = [PATTERNS.get(name, name) for name in types]
    return words[0] if len(set(words)) == 1 else words


def their_layers(pattern: str | list[str], ours: Values) -> list[str]:
    """Name the type of each layer; a pattern they have not becomes another, and is refused for it."""
    patterns = [pattern] * ours["num_hidden_layers"] if isinstance(pattern, str) else pattern
    return [CACHE_LAYER_TYPES[word] for word in patterns]


def canonical(value: object) -> object:
    """Spell equal values alike: (n, n) is n, an activation has one name, a whole rotation is not partial."""
    if isinstance(value, str):
        return SYNONYMS.get(value, value)
    if isinstance(value, dict):
        return {name: item for name, item in value.items() if (name, item) != ("partial_rotary_factor", 1.0)}
    sides = set(value) if isinstance(value, list | tuple) and all(isinstance(side, int) for side in value) else ()
    return sides.pop() if len(sides) == 1 else list(value) if isinstance(value, tuple) else value


def matters(name: str, ours: Values) -> bool:
    """Return whether a field of ours changes any number of this model."""
    part, _, key = name.rpartition(".")
    # A factor on the scores is absorbed by the queries; a part leaves to the whole what that says as well.
    if key in BOOKKEEPING | {"attention_multiplier"} or (part and key in ours) or name in UNASKED:
        return False
    if key not in MATTERS_WITH:
        return True
    condition, words = MATTERS_WITH[key]
    value = ours.get(f"{part}.{condition}" if part else condition)
    return value is None or not {*words.split()}.isdisjoint([value] if isinstance(value, str) else value)
