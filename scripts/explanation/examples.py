"""The lines of explanations to type: a command that uses a field or word."""

import json
import shlex
from collections.abc import Sequence
from typing import Any

from qkv.scripts.explanation.entries import all_recipes, values_of_recipes
from qkv.scripts.recipes.fields.config_fields import ConfigField, config_of, parts
from qkv.scripts.recipes.fields.help import spelled, value_of
from qkv.scripts.recipes.fields.recipe_fields import RecipeField, recipe_fields
from qkv.scripts.recipes.keys import GROUPS

# Values of fields of configs whose default is none.
VALUES: dict[str, Any] = {
    "intermediate_size": 256, "head_dim": 16, "num_key_value_heads": 2, "sliding_window": 16, "embedding_size": 64,
    "layer_scale": 1.0, "final_norm": True, "attention_multiplier": 1.0, "attention_size": 64, "readout_size": 64,
    "embedding_chunk_size": 16, "num_encoder_layers": 2, "head_act": "tanh", "encoder_hidden_size": 64,
    "position": "rope",
}  # fmt: skip
# The words that a word needs beside it.
NEEDED = {
    "class_token=false": ["pooling=mean"],
    "pattern=sliding": ["sliding_window=16"],
    "pattern=dilated": ["sliding_window=16"],
    "global_projections=true": ["pattern=sliding", "sliding_window=16"],
    "pooling=distilled": ["distillation_token=true"],
    "pooling=end": ["eos_token_id=0"],
    "attention=dot": ["encoder_hidden_size=64"],
    "patience=3": ["watch=validation loss"],
    "scale_embedding=token_dropout": ["mask_token_id=1"],
    "column_attention=true": ["outer_product=mean"],
    "decay_steps=100": ["schedule=wsd"],
}
# Fields of recipes that hold fields of other schemas, with one of those.
OPEN = {"model": ["model.position=rope"], "stock": ["model_source=stock", "stock.model_type=vit"]}
# Values of fields of recipes whose default is none, or would change nothing.
RECIPE_VALUES = {
    "epochs": "3", "learning_rate": "3e-4", "ema_decay": "0.999", "threads": "2", "seed": "1", "workers": "2",
    "accumulate": "2", "decay_steps": "100", "split_seed": "1", "tensor_parallel": "2", "init": "runs/first",
    "preset": "vit_base_16", "out": "runs/mine", "tracker": "tensorboard", "watch": "validation loss",
    "patience": "3", "save_every": "100",
    "group": "author", "text.target": "french", "text.label": "subject", "text.pair": "answer", "title": "Mine",
    "name": "mine", "limits": "It is small.", "prompt": "Once upon a time", "data": "FOLDER", "text.column": "body",
    "architecture": "QkvImageEncoderForImageClassification", "encoding": "latin-1", "holdout": "0.1",
    "card.title": "Mine", "card.description": "It tells areas apart.", "card.license": "mit", "card.language": "en",
}  # fmt: skip
# Fields that concern several processes, and what starts two of them.
OF_SEVERAL_PROCESSES = ("strategy", "tensor_parallel")
SEVERAL_PROCESSES = ["torchrun", "--nproc-per-node", "2", "scripts/train.py"]
OWN_DATA = "mine.csv"
# Fields that concern data of one's own.
OF_OWN_DATA = (
    "holdout test_size split split_seed group leaked_records streaming shards buffer documents encoding bad_records "
    "text.column text.target text.pair text.label card.title card.description card.license card.language"
).split()


# Words that only decoders take.
OF_DECODERS = ("gated_delta",)


def line_of_config(configs: Sequence[str], field: ConfigField, word: str | None = None) -> str:
    """Return a line that trains a recipe whose config, or a part of it, is one of these, with a field set."""
    configs = ["QkvDecoderConfig"] if word in OF_DECODERS else configs
    fitting = {name: prefix for name in all_recipes() if (prefix := prefix_of(name, configs)) is not None}
    own = {name: all_recipes()[name].model.config[field.name] for name in fitting if is_set(name, field.name)}
    name = next(iter(own if word is None else fitting), next(iter(fitting)))
    value = example_value(field, own.get(name)) if word is None else word
    words = [f"{field.name}={typed([value] if field.in_list and value in field.words else value)}"]
    words += NEEDED.get(words[0], [])
    return shlex.join(["qkv", "train", name, *(f"model.{fitting[name]}{one}" for one in words)])


def is_set(recipe: str, field: str) -> bool:
    """Tell whether a recipe sets a field of its config."""
    return field in all_recipes()[recipe].model.config


def prefix_of(recipe: str, configs: Sequence[str]) -> str | None:
    """Return where the fields of one of these configs stand in a recipe's: at its top or in a part; None where not."""
    own = config_of(all_recipes()[recipe].model.architecture) or ""
    return "" if own in configs else next((f"{part}." for part, kind in parts(own).items() if kind in configs), None)


def example_value(field: ConfigField, own: Any) -> Any:
    """Return a value for a field: its recipe's own, or another than the default where there is such a one to show."""
    if field.name in VALUES and (not field.words or VALUES[field.name] in field.words):
        return VALUES[field.name]
    if isinstance(field.default, bool):
        return not field.default
    if field.words:
        return next(word for word in field.words if word != field.default or len(field.words) == 1)
    return field.default if own is None else own


def typed(value: Any) -> str:
    """Return a value as it is typed; YAML reads no number in 1e-05."""
    small = isinstance(value, float) and "e" in str(value)
    return f"{value:f}" if small else json.dumps(value).replace('"', "")


def line_of_recipe(field: RecipeField, word: str | None = None) -> str:
    """Return a line that trains with a field of recipes set: a recipe that sets it too, or data of one's own."""
    if field.key in GROUPS:
        return next(line_of_recipe(other) for key, other in recipe_fields().items() if key.startswith(f"{field.key}."))
    name = subject(field)
    words = [f"{field.key}={word or RECIPE_VALUES.get(field.key) or spelled(recipe_value(field, name))}"]
    words = OPEN[field.key] if field.key in OPEN else [*words, *NEEDED.get(words[0], [])]
    command = SEVERAL_PROCESSES if field.key in OF_SEVERAL_PROCESSES else ["qkv", "train"]
    return shlex.join([*command, name, *words])


def recipe_value(field: RecipeField, name: str) -> Any:
    """Return a value for a field: another than the default where it has words, else that of a recipe."""
    if isinstance(field.default, bool):
        return not field.default
    if field.words:
        return next(word for word in field.words if word != field.default)
    return field.default if name == OWN_DATA else value_of(values_of_recipes()[name], field.key)


def subject(field: RecipeField) -> str:
    """Return what to train by a line with a field: a table where it concerns own data, else the first that sets it."""
    if field.key in OF_OWN_DATA:
        return OWN_DATA
    setting = (name for name, values in values_of_recipes().items() if value_of(values, field.key) != field.default)
    return next((name for name in setting if all_recipes()[name].model.preset is None), "digits")
