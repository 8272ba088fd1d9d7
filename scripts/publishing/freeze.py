"""What does a model's config decide for good? The fields that shape its code; sizes, rates and labels stay free.

In the copy of the code a decided field admits only the values that the model has, so a change that the code could not
follow is refused and not ignored.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

from transformers import PreTrainedConfig

from qkv.configuration.configuration_base import QkvConfig, literal_words
from qkv.configuration.configuration_stack import StackConfig
from qkv.scripts.publishing.specialise import Edit, Facts, Text

# Switches that change nothing about which code runs, or that transformers flips itself.
FREE = frozenset({"use_cache", "tie_word_embeddings", "is_encoder_decoder"})
# What code asks of a config besides its fields.
DERIVED = ("causal", "frontend", "hidden_size", "embedding_width", "position_width", "output_width")


def parts(config: PreTrainedConfig) -> list[PreTrainedConfig]:
    """The config itself and the configs inside it."""
    return [config, *(getattr(config, name) for name in config.sub_configs)]


def decided(config: PreTrainedConfig) -> dict[str, tuple[Any, ...]]:
    """{field: its values in the config and its parts} of the fields that the code depends on."""
    found: dict[str, list[Any]] = {}
    for part in parts(config):
        inherited = {field.name for field in fields(PreTrainedConfig)}
        for field in fields(part):
            if field.name not in inherited | FREE and shapes_code(field.type, getattr(part, field.name)):
                value = getattr(part, field.name)
                found.setdefault(field.name, []).extend(value if isinstance(value, list) else [value])
    return {name: tuple(dict.fromkeys(values)) for name, values in found.items()}


def shapes_code(annotation: Any, value: Any) -> bool:
    """Whether a field is a switch, a word, or something that is not there at all."""
    return annotation in (bool, bool | None) or bool(literal_words(annotation)) or value is None


def facts(config: PreTrainedConfig) -> Facts:
    """What is known to the code of a model with this config."""
    stacks = [part for part in parts(config) if isinstance(part, StackConfig)]
    found: dict[str, tuple[Any, ...]] = {"TYPE_CHECKING": (False,)}
    for name, values in decided(config).items():
        if name != "attention_patterns":
            found[f"config.{name}"] = values
    for name in DERIVED:
        owners = [part for part in parts(config) if hasattr(part, name)]
        found[f"config.{name}"] = tuple(getattr(part, name) for part in owners)
    found["config.layer_patterns"] = tuple(tuple(stack.layer_patterns) for stack in stacks)
    found["pattern"] = tuple(dict.fromkeys(word for stack in stacks for word in stack.layer_patterns))
    return found


def frozen(source: str, config: PreTrainedConfig) -> Iterator[Edit]:
    """The fields of config classes in a source, with types and defaults narrowed to what the config decides."""
    text, values = Text(source), decided(config)
    for owner in ast.walk(text.tree):
        if isinstance(owner, ast.ClassDef):
            for node in owner.body:
                name = node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else ""
                if isinstance(node, ast.AnnAssign) and name in values and not is_class_variable(node):
                    yield text.start(node), text.end(node), narrowed(name, values[name], node)


def is_class_variable(node: ast.AnnAssign) -> bool:
    """Whether the family has decided it already."""
    return ast.unparse(node.annotation).startswith("ClassVar")
