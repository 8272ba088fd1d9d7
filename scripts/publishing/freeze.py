"""What does a model's config decide for good? The fields that shape its code; sizes, rates and labels stay free.

In the copy of the code a decided field admits only the values that the model has, so a change that the code could not
follow is refused and not ignored.
"""

import ast
from dataclasses import fields
from typing import Any

from transformers import PreTrainedConfig

from qkv.configuration.configuration_base import literal_words
from qkv.configuration.configuration_decoder import QkvDecoderConfig
from qkv.configuration.configuration_encoder import QkvEncoderConfig
from qkv.configuration.configuration_stack import StackConfig
from qkv.scripts.publishing.specialise import MISSING, Facts, Text, replace

FAMILIES = (QkvEncoderConfig, QkvDecoderConfig)
# Switches that decide nothing about the code, or that transformers sets itself.
FREE = frozenset({"use_cache", "tie_word_embeddings", "is_encoder_decoder"})
# Numbers that shape the code by being there at all.
OPTIONAL = ("layer_scale", "attention_multiplier")
# What code asks of a config besides its fields.
DERIVED = ("causal", "frontend", "hidden_size", "embedding_width", "position_width", "output_width", "rope_by_pattern")


def parts(config: PreTrainedConfig) -> list[Any]:
    """The config itself and the configs inside it."""
    return [config, *(getattr(config, name) for name in config.sub_configs)]


def decided(config: PreTrainedConfig) -> dict[str, tuple[Any, ...]]:
    """{field: its values in the config and its parts} of the fields that the code depends on."""
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
    is_choice = field.type in (bool, bool | None) or literal_words(field.type)
    return bool(is_choice) or (field.name in OPTIONAL and value is None)


def facts(config: PreTrainedConfig) -> Facts:
    """What is known to the code of a model with this config."""
    whole = parts(config)
    stacks = [part for part in whole if isinstance(part, StackConfig)]
    known = {field.name for family in FAMILIES for field in fields(family)}
    found = {name: (MISSING,) for name in known if not any(hasattr(part, name) for part in whole)}
    for name, values in decided(config).items():
        found[name] = (*values, *(MISSING for part in whole if not hasattr(part, name)))
    found |= {name: tuple(getattr(part, name, MISSING) for part in whole) for name in DERIVED}
    found["layer_patterns"] = tuple(tuple(stack.layer_patterns) for stack in stacks)
    return {
        **{f"config.{name}": values for name, values in found.items()},
        "pattern": tuple(dict.fromkeys(word for stack in stacks for word in stack.layer_patterns)),
        "TYPE_CHECKING": (False,),
    }


def differing(config: PreTrainedConfig) -> list[str]:
    """The fields that shape code, and in which the parts of the config are not alike."""
    known = {name.partition(".")[2]: set(values) - {MISSING} for name, values in facts(config).items()}
    return sorted(name for name, values in known.items() if name in {*decided(config), "causal"} and len(values) > 1)


def words_gone(config: PreTrainedConfig) -> frozenset[str]:
    """Words of the vocabulary that nothing in this config says."""
    known = {word for part in parts(config) for field in fields(part) for word in literal_words(field.type)}
    stacks = [part for part in parts(config) if isinstance(part, StackConfig)]
    said = {value for values in decided(config).values() for value in values}
    return frozenset(known - said - {word for stack in stacks for word in stack.layer_patterns})


def freeze(source: str, config: PreTrainedConfig) -> str:
    """A source in which fields of config classes admit only what the config decides."""
    text, values, edits = Text(source), decided(config), []
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
