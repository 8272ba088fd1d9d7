"""Explain what a model is made of: fields of configs, their words, architectures and presets."""

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any

from qkv.scripts.common.source_code import assigned, definitions, docstring, table
from qkv.scripts.explanation.entries import Entry, all_recipes, prose, source
from qkv.scripts.explanation.examples import line_of_config
from qkv.scripts.recipes.fields.config_fields import ConfigField, config_of, families, fields_of_config, parts
from qkv.scripts.recipes.fields.help import spelled

# The tables of the words of a field, by the field.
TABLES = {
    "position": ("modeling/position/*.py", "POSITIONS"),
    "pattern": ("modeling/pattern.py", "PATTERNS"),
    "norm": ("modeling/normalization.py", "NORMS"),
    "feed_forward": ("modeling/feed_forward.py", "FEED_FORWARDS"),
    "pooling": ("modeling/heads/head.py", "POOLINGS"),
    "cell": ("modeling/recurrent/cells.py", "CELLS"),
    "attention": ("modeling/recurrent/attention_decoder.py", "ATTENTION_DECODERS"),
    "readout": ("modeling/recurrent/attention_decoder.py", "READOUTS"),
    "convolution": ("modeling/frontends/spectrogram.py", "CONVOLUTIONS"),
    "frame_layout": ("modeling/frontends/spectrogram.py", "FRAME_LAYOUTS"),
    "frame_padding": ("modeling/frontends/spectrogram.py", "FRAME_PADDINGS"),
    "transcription": ("modeling/modeling_speech_encoder_decoder.py", "TRANSCRIPTIONS"),
}
# A paper as presets name it: Press et al. 2022, Zhang & Sennrich 2019.
PAPER = re.compile(r"[A-Z][\w'-]+(?: et al\.| & [A-Z][\w'-]+)? (?:19|20)\d\d")
MODELS = "modeling/modeling_*.py"
PRESETS = "configuration/presets.py"
CONVERSION = "modeling/conversion/*.py"


def explain_config_fields() -> Iterator[Entry]:
    """Explain each field of a config, once for each meaning, type and default that it has."""
    for name, uses in uses_of_fields().items():
        variants: dict[tuple[str, ...], list[str]] = {}
        for config, field in uses.items():
            variants.setdefault((field.meaning, field.takes, spelled(field.default)), []).append(config)
        for (meaning, takes, default), configs in variants.items():
            facts = {"takes": takes, "default": default, "configs": spelled_families(configs)}
            line = line_of_config(configs, uses[configs[0]])
            yield Entry((name, f"model.{name}"), "field of a model's config", meaning, source(meaning), line, facts)


def uses_of_fields() -> dict[str, dict[str, ConfigField]]:
    """Return {name: {config: field}} of all fields of configs."""
    uses: dict[str, dict[str, ConfigField]] = {}
    for config in families():
        for name, field in fields_of_config(config).items():
            uses.setdefault(name, {})[config] = field
    return dict(sorted(uses.items()))


def spelled_families(configs: Sequence[str]) -> str:
    """Return these configs by name, with those that hand their fields on to such a part; or the few that are not."""
    having = [one for one in families() if one in configs or set(parts(one).values()) & set(configs)]
    others = [one for one in families() if one not in having]
    return f"all but {', '.join(others)}" if 0 < len(others) < len(having) / 2 else ", ".join(having)


def explain_words() -> Iterator[Entry]:
    """Explain each word of a field of a config by what it stands for, or else by its field."""
    for name, uses in uses_of_fields().items():
        for word in dict.fromkeys(word for field in uses.values() for word in field.words):
            configs = [config for config, field in uses.items() if word in field.words]
            field = uses[configs[0]]
            text = definition(name, word) or field.meaning
            facts = {"configs": spelled_families(configs), "recipes": ", ".join(recipes_with(name, word))}
            default = " or ".join(dict.fromkeys(spelled(uses[config].default) for config in configs))
            line = line_of_config(configs, field, word)
            kind = f"word of model.{name}, whose default is {default}"
            yield Entry((word,), kind, prose(text), source(text), line, facts)


def definition(field: str, word: str) -> str:
    """Return the docstring of what a word of a field stands for; nothing where it has no table."""
    if field not in TABLES:
        return ""
    pattern, name = TABLES[field]
    return docstring(definitions(pattern).get(ast.unparse(table(pattern, name)[word])))


def recipes_with(field: str, word: str) -> list[str]:
    """Return the recipes whose model has a word in a field, alone or in a list."""
    values = {name: recipe.model.config.get(field) for name, recipe in all_recipes().items()}
    return [name for name, value in values.items() if word == value or (isinstance(value, list) and word in value)]


def explain_architectures() -> Iterator[Entry]:
    """Explain each public model class."""
    for name in ast.literal_eval(assigned("modeling/__init__.py")["__all__"]):
        if name.startswith("Qkv"):
            recipes = [key for key, recipe in all_recipes().items() if recipe.model.architecture == name]
            line = f"qkv train {recipes[0]}" if recipes else f'python -c "from qkv import {name}; help({name})"'
            facts = {"config": str(config_of(name)), "recipes": ", ".join(recipes)}
            text = docstring(definitions(MODELS)[name])
            yield Entry((name,), "architecture", prose(text), source(text), line, facts)


def explain_presets() -> Iterator[Entry]:
    """Explain each preset by the paper that it follows."""
    helpers = ast.literal_eval(assigned(PRESETS)["HELPERS"])
    for name, function in definitions(PRESETS).items():
        if name not in helpers:
            text = " ".join(docstring(function).split())
            paper = PAPER.search(text)
            start = paper.start() if paper else len(text)
            recipes = [key for key, recipe in all_recipes().items() if recipe.model.preset == name]
            facts = {"in Python": f"qkv.presets.{name}()", "recipes": ", ".join(recipes)}
            yield Entry((name,), "preset", text[:start].strip(), text[start:], f"qkv plan {name}", facts)


def explain_conversions() -> Iterator[Entry]:
    """Explain each model type of transformers that is converted."""
    configs: dict[str, list[str]] = {}
    for node in assigned(CONVERSION).values():
        if isinstance(node, ast.Call) and (read := converted(node)):
            configs.setdefault(read[0], []).append(read[1])
    for model_type, classes in sorted(configs.items()):
        text = f"A model type of transformers that is converted to {' or '.join(dict.fromkeys(classes))} and back."
        line = f"qkv convert FOLDER models/{model_type} --check"
        yield Entry((model_type,), "model type of transformers", text, example=line)


def converted(node: ast.Call) -> tuple[str, str] | None:
    """Return model type and config of an `Architecture(...)`, or of one that differs from another by `replace`."""
    given: dict[str | None, Any] = {one.arg: one.value for one in node.keywords}
    if ast.unparse(node.func) == "Architecture":
        return ast.literal_eval(node.args[0]), ast.unparse(node.args[1])
    if ast.unparse(node.func) != "replace":
        return None
    base = assigned(CONVERSION)[ast.unparse(node.args[0])]
    read = converted(base) if isinstance(base, ast.Call) else None
    return read and (ast.literal_eval(given["model_type"]) if "model_type" in given else read[0], read[1])
