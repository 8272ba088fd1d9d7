"""What does a model's config decide for good? The fields that shape its code; sizes, rates and labels stay free.

In the copy of the code a decided field admits only the values that the model has, so a change that the code could not
follow is refused and not ignored.
"""

import ast
from dataclasses import dataclass, fields
from typing import Any

from transformers import PreTrainedConfig

from qkv.configuration.configuration_base import literal_words
from qkv.configuration.configuration_decoder import QkvDecoderConfig
from qkv.configuration.configuration_detection import QkvImageEncoderConfig, QkvSlotDecoderConfig
from qkv.configuration.configuration_encoder import QkvEncoderConfig
from qkv.configuration.configuration_stack import StackConfig
from qkv.scripts.publishing.export.constant_folding import MISSING, Facts
from qkv.scripts.publishing.export.syntax import Text, replace

FAMILIES = (QkvEncoderConfig, QkvDecoderConfig, QkvImageEncoderConfig, QkvSlotDecoderConfig)
# Switches that decide nothing about the code, that who trains the model sets, or transformers itself.
FREE = frozenset({"use_cache", "tie_word_embeddings", "is_encoder_decoder", "apply_spec_augment", "ctc_zero_infinity"})
# Numbers that shape the code by being there at all.
OPTIONAL = ("layer_scale", "attention_multiplier")
# What code asks of a config besides its fields.
DERIVED = (
    *("causal", "frontend", "rope_by_pattern", "start_with_last_token"),
    *("class_token", "distillation_token", "mask_token"),
)
# Of these it only matters which are the same.
WIDTHS = ("hidden_size", "embedding_width", "position_width", "output_width")


@dataclass(frozen=True)
class Decisions:
    """What a config decides: two configs that decide the same share their code."""

    # {field: its values in the config and its parts} of the fields that shape code.
    fields: tuple[tuple[str, tuple[Any, ...]], ...]
    facts: tuple[tuple[str, tuple[Any, ...]], ...]
    # Words of the vocabulary that nothing in the config says.
    gone: frozenset[str]

    @classmethod
    def of(cls, config: PreTrainedConfig) -> "Decisions":
        """The decisions of a config and its parts."""
        fields = decided(config)
        return cls(tuple(fields.items()), tuple(facts(config, fields).items()), words_gone(config, fields))

    @property
    def differing(self) -> list[str]:
        """The fields that shape code, and in which the parts of the config are not alike."""
        known = {name.partition(".")[2]: set(values) - {MISSING} for name, values in self.facts}
        shaping = {"causal", *dict(self.fields)}
        return sorted(name for name, values in known.items() if name in shaping and len(values) > 1)


def parts(config: PreTrainedConfig) -> list[Any]:
    """The config itself and the configs inside it."""
    return [config, *(getattr(config, name) for name in config.sub_configs)]


def stacks(config: PreTrainedConfig) -> list[StackConfig]:
    """Those of them that describe a stack of layers."""
    return [part for part in parts(config) if isinstance(part, StackConfig)]


def decided(config: PreTrainedConfig) -> dict[str, tuple[Any, ...]]:
    """{field: its values} of the fields that shape code."""
    inherited = {field.name for field in fields(PreTrainedConfig)} | FREE
    found: dict[str, list[Any]] = {}
    for part in parts(config):
        for field in fields(part):
            value = getattr(part, field.name)
            if field.name not in inherited and shapes_code(field, value):
                found.setdefault(field.name, []).extend(value if isinstance(value, list) else [value])
    return {name: tuple(dict.fromkeys(values)) for name, values in found.items()}


def shapes_code(field: Any, value: Any) -> bool:
    """Whether a field is a switch, a word, or a number that is not there."""
    return field.type in (bool, bool | None) or bool(words_of(field)) or (field.name in OPTIONAL and value is None)


def words_of(field: Any) -> tuple[str, ...]:
    """The words that a field may say, if it is one of words."""
    return literal_words(field.type)


def facts(config: PreTrainedConfig, decided: dict[str, tuple[Any, ...]]) -> Facts:
    """What is known to the code of a model with this config."""
    whole, layers = parts(config), [tuple(stack.layer_patterns) for stack in stacks(config)]
    elsewhere = {field.name for family in FAMILIES for field in fields(family)}
    found: dict[str, tuple[Any, ...]] = {
        name: (MISSING,) for name in elsewhere if not any(hasattr(part, name) for part in whole)
    }
    for name, values in decided.items():
        # A list is what one model has: its field is empty by default, and transformers makes configs of defaults.
        empty = (None for part in whole if isinstance(getattr(part, name, None), list))
        found[name] = (*values, *empty, *(MISSING for part in whole if not hasattr(part, name)))
    found |= {name: tuple(getattr(part, name, MISSING) for part in whole) for name in DERIVED}
    sizes = {name: [getattr(stack, name) for stack in stacks(config)] for name in WIDTHS}
    order = list(dict.fromkeys(sum(sizes.values(), [])))
    # Not the sizes themselves, which are free, nor numbers, one of which would be nothing.
    found |= {name: tuple(f"size {order.index(value)}" for value in values) for name, values in sizes.items()}
    found["layer_patterns"] = tuple(layers)
    known = {f"config.{name}": values for name, values in sorted(found.items())}
    return known | {"pattern": tuple(dict.fromkeys(sum(layers, ()))), "TYPE_CHECKING": (False,)}


def words_gone(config: PreTrainedConfig, decided: dict[str, tuple[Any, ...]]) -> frozenset[str]:
    """Words of the vocabulary that nothing in this config says."""
    families = {*map(type, parts(config)), *FAMILIES}
    known = {word for family in families for field in fields(family) for word in words_of(field)}
    known |= {str(getattr(family, "frontend", "tokens")) for family in families}
    said = {value for values in decided.values() for value in values}
    # What one part decides in its fields, another may have by its class: a decoder reads tokens whatever is encoded.
    said |= {getattr(part, name, None) for part in parts(config) for name in DERIVED}
    return frozenset(known - said - {word for stack in stacks(config) for word in stack.layer_patterns})


def freeze(source: str, decisions: Decisions) -> str:
    """A source in which fields of config classes admit only what is decided."""
    text, values, edits = Text(source), dict(decisions.fields), []
    for owner in text.tree.body:
        for node in owner.body if isinstance(owner, ast.ClassDef) else ():
            name = node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else ""
            if isinstance(node, ast.AnnAssign) and name in values and "ClassVar" not in ast.unparse(node.annotation):
                edits.append((text.start(node), text.end(node), narrowed(node, values[name])))
    return replace(source, edits)


def narrowed(node: ast.AnnAssign, values: tuple[Any, ...]) -> str:
    """A field of a dataclass that admits only these values, the first of them by default."""
    said = [value for value in values if value is not None]
    kind = f"Literal[{', '.join(repr(value) for value in said)}]" if said else ""
    if "list[" in ast.unparse(node.annotation) and said:
        return f"{ast.unparse(node.target)}: list[{kind}] | None = None"
    kinds = " | ".join([kind] * bool(said) + ["None"] * (None in values))
    return f"{ast.unparse(node.target)}: {kinds} = {values[0]!r}"
