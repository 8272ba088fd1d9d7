"""Conversion of configs by tables of fields, with one test: there and back again must change nothing.

That test refuses a field of theirs that our words cannot hold, a word of ours that stock transformers has no
architecture for, and an unknown field. No list of unsupported settings exists, so none can be out of date.
"""

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig

from ...configuration.configuration_base import QkvConfig
from ...configuration.configuration_pattern import CACHE_LAYER_TYPES
from .weights import Row, placed

# A value of a config, of any type.
Value = Any
Values = dict[str, Value]

# Names that describe a file or a run rather than a model, and names that earlier versions of transformers wrote.
BOOKKEEPING = frozenset(
    "transformers_version architectures dtype model_type auto_map task_specific_params tokenizer_class finetuning_task "
    "output_past torchscript pruned_heads gradient_checkpointing prefix transformers.js_config".split()
)
# Two names of one function in transformers' table of activations.
SYNONYMS = {"swish": "silu", "gelu_python": "gelu"}
# A field of ours that is read only if another field has one of certain values.
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
    **dict.fromkeys(("relative_attention_num_buckets", "relative_attention_max_distance"), ("position", "t5")),
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
    **dict.fromkeys(("pooling", "pooling_dropout"), POOLING),
    "head_transform": (*CLASSIFIERS, "ForQuestionAnswering"),
    "classifier_dropout": CLASSIFIERS,
    "qa_dropout": ("ForQuestionAnswering",),
    "lm_head_bias": ("ForMaskedLM", "ForPreTraining", "ForCausalLM"),
    "mask_token": ("Model", "ForImageClassification"),
}


def one_spelling(value: Value, theirs: object = None) -> Value:
    """Return the one name of an activation; any other value stays."""
    return SYNONYMS.get(value, value) if isinstance(value, str) else value


@dataclass(frozen=True)
class Codec:
    """A field that is spelt differently: `read(their value, all of theirs)`, `write(our value, all of ours)`."""

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


def translated(name: str, words: Mapping[str, object]) -> Codec:
    """Map a field whose words are others, theirs to ours; an unknown word stays, for the config to refuse."""
    back = {ours: theirs for theirs, ours in words.items()}
    return Codec(name, lambda word, theirs: words.get(word, word), lambda word, ours: back.get(word, word))


def output_bias(name: str) -> Codec:
    """Map a switch of the biases of queries, keys and values; that of the output stays."""
    return Codec(name, lambda biased, theirs: biased or ["o_proj"], lambda biases, ours: biases is True)


# Positions that are counted from the padding id + 1.
AFTER_PADDING = Codec("pad_token_id", lambda pad, theirs: pad + 1, lambda offset, ours: max(offset - 1, 0))
# Fields that every config carries over unchanged.
CARRIED = renames(
    "id2label label2id problem_type output_hidden_states output_attentions return_dict chunk_size_feed_forward"
)
# A base model has no prefix.
BASE = ("", "")


@dataclass(frozen=True)
class Head:
    """A class of an architecture, by the end of its name, `theirs` where the official one ends differently.

    `rows` are the weights of its head, `words` and `fields` those of its config; `pooler` says of a base model with and
    without a pooler which of the two it is; `prefixes` stand before the names of the base model, ours and theirs, where
    they are not the architecture's; `inert` are fields that this class alone does not read.
    """

    ours: str
    rows: tuple[Row, ...] = ()
    words: Mapping[str, object] = field(default_factory=dict)
    fields: Fields = field(default_factory=dict)
    theirs: str = ""
    pooler: bool | None = None
    prefixes: tuple[str, str] | None = None
    inert: str = ""


@dataclass(frozen=True)
class Architecture:
    """One published architecture: its fields in our words, the words it never changes, its weights, its heads.

    `name` begins the names of its classes. `free` are fields of ours, or keys in one, that the weights decide; `inert`
    are fields of theirs that change no number of a loaded model with these heads; `assumed` are undeclared fields of
    old config.json files with their only possible value.
    """

    model_type: str
    name: str
    family: type[QkvConfig]
    fields: Fields
    words: Mapping[str, object]
    rows: tuple[Row, ...]
    heads: tuple[Head, ...]
    prefixes: tuple[str, str] = ("model.", "")
    free: str = ""
    inert: str = ""
    assumed: Mapping[str, object] = field(default_factory=dict)


class Conversion:
    """An official class and ours: the names of both, the fields of their configs, and all their weights."""

    def __init__(self, architecture: Architecture, head: Head) -> None:
        self.model_type, self.family, self.pooler = architecture.model_type, architecture.family, head.pooler
        self.theirs = architecture.name + (head.theirs or head.ours)
        self.ours = architecture.family.__name__.removesuffix("Config") + head.ours
        # A field of ours may be two of theirs: both are written, and that of the head is read.
        fields = (*CARRIED.items(), *architecture.fields.items(), *head.fields.items())
        self.fields = [(ours, Codec(theirs) if isinstance(theirs, str) else theirs) for ours, theirs in fields]
        self.words = {**architecture.words, **head.words}
        # Rows of the head come first, and take weights from the base.
        self.rows = (*head.rows, *placed(architecture.rows, *(head.prefixes or architecture.prefixes)))
        # Stock models have no place for label smoothing, which changes no output: it is Trainer's.
        self.free = {"label_smoothing", *architecture.free.split()}
        self.inert = BOOKKEEPING.union(architecture.inert.split(), head.inert.split())
        self.assumed = architecture.assumed

    def read(self, config: PreTrainedConfig) -> QkvConfig:
        """Translate an official config to ours."""
        theirs = flat(config)
        values = {ours: codec.read(theirs.get(codec.name), theirs) for ours, codec in self.fields}
        return self.family(**nested({**values, **self.words}, self.family.sub_configs))

    def write(self, config: QkvConfig) -> PreTrainedConfig:
        """Translate our config to the official one."""
        # No stock config says to what frequencies are rounded.
        ours = without(flat(config), {"inv_freq_dtype"})
        values = {codec.name: codec.write(ours.get(name), ours) for name, codec in self.fields}
        parts = CONFIG_MAPPING[self.model_type].sub_configs_defaults
        return AutoConfig.for_model(self.model_type, **nested(values, parts))

    def lost_on_reading(self, config: PreTrainedConfig) -> list[str]:
        """List the fields that reading this config would change; a field left None stands for whatever it becomes."""
        values = {
            name: value
            for name, value in flat(config).items()
            if value is not None and self.inert.isdisjoint((name, name.partition(".")[0], name.rpartition(".")[2]))
        }
        return different(values, {**self.assumed, **flat(self.write(self.read(config)))})

    def lost_on_writing(self, config: QkvConfig) -> list[str]:
        """List the fields that writing this config as theirs would change."""
        ours, again = flat(config), flat(self.read(self.write(config)))
        activations = self.default_activations(ours)
        if len(activations) == 1:
            for values in (ours, again):
                values["head_act"] = values["head_act"] or values.get(activations[0], activations[0])
        unread = {name for name, ends in READ_BY.items() if not self.ours.endswith(ends)}
        unread |= {"pooling", "pooling_dropout"} if self.pooler is False else set()
        unread |= set() if activations else {"head_act", "head_bias"}
        return different(without({name: ours[name] for name in ours if matters(name, ours)}, self.free | unread), again)

    def default_activations(self, ours: Values) -> list[str]:
        """List the activations that `head_act=None` stands for in a class, or the fields that name them."""
        pools = self.ours.endswith(POOLING) and self.pooler is not False and ours.get("pooling") == "dense"
        transforms = ours.get("head_transform", False) and self.ours.endswith(READ_BY["head_transform"])
        return ["tanh"] * pools + ["hidden_act"] * (transforms or self.ours.endswith(TRANSFORMING))


def flat(config: PreTrainedConfig) -> Values:
    """Return all fields of a config; those of a part under `part.field`."""
    values: Values = {}
    own, parts = vars(config), config.sub_configs
    for name, value in config.to_dict().items():
        if name not in own:  # a field of a part, repeated for other programs
            continue
        inner = value if name in parts and value else {}
        values |= {f"{name}.{key}": item for key, item in inner.items()} or {name: value}
    for prefix in ("", *(f"{part}." for part in parts)):
        patterns = values.get(f"{prefix}pattern")
        if isinstance(patterns, list) and len(set(patterns)) == 1:  # the same pattern in every layer, said at length
            values[f"{prefix}pattern"] = patterns[0]
    return values


def nested(values: Mapping[str, object], parts: Collection[str]) -> Values:
    """Group the fields of parts again: the inverse of `flat`."""
    result: Values = {name: {} for name in parts}
    for name, value in values.items():
        part, _, key = name.rpartition(".")
        (result[part] if part else result)[key] = copy.deepcopy(value)
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


def matters(name: str, ours: Values) -> bool:
    """Return whether a field of ours changes any number of this model."""
    part, _, key = name.rpartition(".")
    # A factor on the scores is absorbed by the queries; the whole repeats some fields of its parts.
    if key in BOOKKEEPING | {"attention_multiplier"} or (part and key in ours) or name == "encoder.pooling":
        return False
    if key not in MATTERS_WITH:
        return True
    condition, words = MATTERS_WITH[key]
    value = ours.get(f"{part}.{condition}" if part else condition)
    return value is None or not {*words.split()}.isdisjoint([value] if isinstance(value, str) else value)
