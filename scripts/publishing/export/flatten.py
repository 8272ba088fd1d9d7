"""Flatten the modules behind a config into two files that load without qkv: one for the config, one for the models.

A definition is in the files if one of the model's classes reaches it; a table keeps the rows that the config names.
transformers copies remote code file by file and follows lines `from .name import`, of which there is one.
"""

import ast
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from transformers import PreTrainedConfig

import qkv
from qkv.configuration import axes
from qkv.configuration.configuration_base import QkvConfig
from qkv.configuration.configuration_pair import QkvPairConfig
from qkv.scripts.publishing.export.join import Joined
from qkv.scripts.publishing.export.tested_releases import TESTED

HEADER = Path(__file__).with_name("header.txt").read_text(encoding="utf-8")


@dataclass(frozen=True)
class FlatCode:
    """{file name: text}, and the `auto_map` of the classes in them."""

    files: dict[str, str]
    auto_map: dict[str, str]


def flatten(config: PreTrainedConfig, *, every_word: bool = False) -> FlatCode:
    """Return the code of every head that a model with this config can have; with `every_word` for all configs.

    ValueError names the file and line that cannot be copied.
    """
    if not isinstance(config, QkvConfig):
        raise ValueError(f"{type(config).__name__} is not a config of qkv; qkv.from_transformers makes the model one")
    classes = tuple((auto, class_of(reference)) for auto, reference in config.auto_map.items())
    return flattened(classes, frozenset() if every_word else vocabulary() - words_of(config))


@cache
def flattened(classes: tuple[tuple[str, type], ...], unused: frozenset[str]) -> FlatCode:
    """Return the code of classes, by the Auto classes that load them, without table rows for unused words."""
    heads = dict(classes)
    family: Any = heads.pop("AutoConfig")
    config_file, model_file = (family.auto_classes[auto].partition(".")[0] for auto in ("AutoConfig", "AutoModel"))
    models, settings = Joined("qkv.modeling"), Joined("qkv.configuration")
    for owner in heads.values():
        models.add(owner.__module__)
    if "PLANS" in models.names():
        models.add("qkv.modeling.fast_paths")  # which registers with the core, and is not imported by it
    models.reduce([owner.__name__ for owner in heads.values()], unused)
    borrowed = sorted(models.borrowed.keys() & models.names())
    models.imports += ast.parse(f"from .{config_file} import {', '.join(borrowed)}").body
    for module in (family.__module__, *(models.borrowed[name] for name in borrowed)):
        settings.add(module)
    settings.reduce([family.__name__, *borrowed])
    code = printed(models, f"qkv.modeling.{model_file}")
    # transformers remembers, for the text of a config class, the model that it saw with it first. So no two models
    # share the text of their config.
    base = heads["AutoModel"].__name__
    own = f"# Goes with {base} of {model_file}.py of SHA-256\n# {hashlib.sha256(code.encode()).hexdigest()}\n"
    auto_map = {"AutoConfig": f"{config_file}.{family.__name__}"}
    auto_map |= {auto: f"{model_file}.{owner.__name__}" for auto, owner in heads.items()}
    files = {f"{config_file}.py": printed(settings, family.__module__, own), f"{model_file}.py": code}
    return FlatCode(files, auto_map)


def class_of(reference: str) -> type:
    """Return the class of qkv that an entry of an `auto_map` names, whatever file the entry names."""
    name = reference.rpartition(".")[2]
    owner = getattr(qkv, name, None)
    if not isinstance(owner, type):
        raise ValueError(f"auto_map names {reference}, but qkv has no class {name}; leave auto_map out of the config")
    return owner


def vocabulary() -> frozenset[str]:
    """Return every word that a config field can have."""
    return frozenset(word for kind in vars(axes).values() if get_origin(kind) is Literal for word in get_args(kind))


def words_of(config: PreTrainedConfig) -> frozenset[str]:
    """Return every text in a config and its parts: fields, class attributes and properties."""
    stacks = [config.residue_stack(), config.pair_stack()] if isinstance(config, QkvPairConfig) else []
    parts, values = [config, *stacks], list[Any]()
    for part in parts:
        owners = [owner for owner in type(part).__mro__ if owner.__module__.startswith("qkv.")]
        names = {name for owner in (part, *owners) for name in vars(owner) if not name.startswith("_")}
        values += [getattr(part, name) for name in names]
        parts += [each for each in values if isinstance(each, QkvConfig) and each not in parts]
    texts = [value if isinstance(value, list | tuple) else [value] for value in values]
    return frozenset(text for several in texts for text in several if isinstance(text, str))


def printed(joined: Joined, module: str, notes: str = "") -> str:
    """Return the text of a file: license, origin, docstring, imports, code."""
    text = f'"""{joined.docstring(module)}"""\n\n{joined.code()}'
    digest = hashlib.sha256(text.encode()).hexdigest()
    return HEADER.format(version=qkv.__version__, notes=notes, digest=digest, **TESTED) + text
