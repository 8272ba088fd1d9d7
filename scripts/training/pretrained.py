"""Start a training from a pretrained model, of qkv or of stock transformers: its config and its weights."""

from functools import cache
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from qkv import modeling
from qkv.modeling.conversion.convert import is_ours
from qkv.modeling.conversion.files import quiet
from qkv.scripts.common.phases import say
from qkv.scripts.conversion.checkpoint import CERTIFICATE, certified_copy
from qkv.scripts.data.pretrained import OWN_FIELDS, most_tokens, pretrained_folder
from qkv.scripts.recipes.keys import merged
from qkv.scripts.recipes.schema import Fields, Recipe
from qkv.scripts.training.distributed import local_main_first


@cache
def own_folder(init: str) -> Path:
    """Return the folder of a pretrained model, of a stock one that of its certified copy."""
    folder = pretrained_folder(init)
    if is_ours(folder):
        return folder
    copy = local_main_first(lambda: certified_copy(folder))
    say(f"{init} is a model of stock transformers: its copy gives the same outputs, says {copy / CERTIFICATE}")
    return copy


def pretrained_config(recipe: Recipe, architecture: Any, fields: dict[str, Any]) -> PreTrainedConfig:
    """Return the config of the pretrained model, with the `fields` of the data and head, and the recipe's own.

    ValueError for a model of another family.
    """
    init = str(recipe.model.init)
    config = AutoConfig.from_pretrained(own_folder(init))
    if not isinstance(config, architecture.config_class):
        raise ValueError(
            f"init={init!r} is a model with a {type(config).__name__}, and {recipe.model.architecture} takes a "
            f"{architecture.config_class.__name__}; give another init, or an architecture that takes it: "
            f"{', '.join(architectures_with(config))}"
        )
    limit, wanted = most_tokens(config), fields.get("max_position_embeddings", 0)
    if limit is not None and wanted > limit:
        raise ValueError(
            f"init={init!r} has {limit} positions, and texts may have {wanted} tokens; write text.length={limit}"
        )
    if kept := kept_fields(config, recipe.model.config):
        say(f"the config is that of init: {', '.join(kept)}")
    own = own_fields(config, merged(fields, recipe.model.config))
    result: PreTrainedConfig = type(config)(**{**config.to_dict(), **own})
    return result


def architectures_with(config: PreTrainedConfig) -> list[str]:
    """Return the names of the architectures with a head that take a config."""
    return [name for name in modeling.__all__ if "For" in name and getattr(modeling, name).config_class is type(config)]


def own_fields(config: PreTrainedConfig, wanted: Fields) -> Fields:
    """Return those of the wanted fields that a training sets itself; parts of a config come whole."""
    own = {}
    for name, value in wanted.items():
        part = getattr(config, name, None)
        if isinstance(part, PreTrainedConfig) and isinstance(value, dict):
            own[name] = {**part.to_dict(), **own_fields(part, value)}
        elif OWN_FIELDS.search(name):
            own[name] = value
    return own


def kept_fields(config: PreTrainedConfig, wanted: Fields, prefix: str = "") -> list[str]:
    """Return the fields in which the pretrained model is not what is wanted, with both values."""
    kept = []
    for name, value in wanted.items():
        there = getattr(config, name, value)
        if isinstance(there, PreTrainedConfig) and isinstance(value, dict):
            kept += kept_fields(there, value, f"{prefix}{name}.")
        elif there != value and not OWN_FIELDS.search(name):
            kept.append(f"{prefix}{name}={there} (not {value})")
    return kept


def load_pretrained(recipe: Recipe, architecture: Any, config: PreTrainedConfig) -> PreTrainedModel:
    """Load the weights of the pretrained model, and print how many of the tensors it had.

    A head that it lacks starts at random. ValueError where a tensor below the head does, unless `partial_init` allows.
    """
    init = str(recipe.model.init)
    with quiet():
        model, report = architecture.from_pretrained(
            own_folder(init), config=config, dtype="float32", output_loading_info=True, ignore_mismatched_sizes=True
        )
    tied = model.get_expanded_tied_weights_keys()
    wanted = [name for name in model.state_dict() if name not in tied]
    new = sorted({*report["missing_keys"], *(entry[0] for entry in report["mismatched_keys"])} - set(tied))
    base = f"{model.base_model_prefix}."
    lacking = [name for name in new if name.startswith(base) and not name.startswith(f"{base}pooler")]
    taken = f"{len(wanted) - len(new)} of {len(wanted)} tensors"
    if lacking and not recipe.model.partial_init:
        shapes = {
            entry[0]: f" is {list(entry[1])} there and {list(entry[2])} here" for entry in report["mismatched_keys"]
        }
        first = ", ".join(f"{name}{shapes.get(name, ' is missing there')}" for name in lacking[:3])
        raise ValueError(
            f"init={init!r} has {taken}: {first}{' …' * (len(lacking) > 3)}; give a model of this shape, or "
            "partial_init=true to start the others at random"
        )
    said = f"; new, and random: {', '.join(new)}" if new else ""
    if unused := sorted(report["unexpected_keys"]):
        said += f"; not used: {', '.join(unused)}"
    say(f"{taken} taken over from {init}{said}")
    return model
