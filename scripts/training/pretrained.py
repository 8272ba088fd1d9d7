"""Start a training from a pretrained model, of qkv or of stock transformers: its config and its weights."""

from functools import cache
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from qkv import modeling
from qkv.modeling.conversion.convert import is_ours
from qkv.modeling.conversion.files import quiet
from qkv.scripts.common.phases import say
from qkv.scripts.conversion.checkpoint import CERTIFICATE, certified_copy
from qkv.scripts.data.pretrained import OWN_FIELDS, most_tokens, pretrained_folder
from qkv.scripts.recipes.fields.keys import merged
from qkv.scripts.recipes.schema import Fields, Recipe


@cache
def own_folder(init: str) -> Path:
    """Return the folder of a pretrained model, or of the certified copy of a stock one."""
    folder = pretrained_folder(init)
    if is_ours(folder):
        return folder
    with PartialState().local_main_process_first():
        copy = certified_copy(folder)
    say(f"{init} is a model of stock transformers: its copy gives the same outputs, says {copy / CERTIFICATE}")
    return copy


def pretrained_config(recipe: Recipe, architecture: Any, fields: dict[str, Any]) -> PreTrainedConfig:
    """Return the pretrained config with the `fields` of data, head and recipe; ValueError for another family."""
    init = str(recipe.model.init)
    config = AutoConfig.from_pretrained(own_folder(init))
    if not isinstance(config, architecture.config_class):
        heads = (name for name in modeling.__all__ if "For" in name)
        takers = ", ".join(name for name in heads if getattr(modeling, name).config_class is type(config))
        raise ValueError(
            f"init={init!r} has a {type(config).__name__}, and {recipe.model.architecture} takes a "
            f"{architecture.config_class.__name__}; give another init, or an architecture that takes it: {takers}"
        )
    limit, wanted = most_tokens(config), fields.get("max_position_embeddings", 0)
    if limit is not None and wanted > limit:
        raise ValueError(
            f"init={init!r} has {limit} positions, and texts may have {wanted} tokens; write text.length={limit}"
        )
    own, _ = divided(config, merged(fields, recipe.model.config))
    _, kept = divided(config, recipe.model.config)
    if kept:
        say(f"the config is that of init: {', '.join(kept)}")
    result: PreTrainedConfig = type(config)(**{**config.to_dict(), **own})
    return result


def divided(config: PreTrainedConfig, wanted: Fields, prefix: str = "") -> tuple[Fields, list[str]]:
    """Divide the wanted fields: values that a training sets, with parts of the config whole, and values that stay."""
    own: Fields = {}
    kept: list[str] = []
    for name, value in wanted.items():
        part = getattr(config, name, None if OWN_FIELDS.search(name) else value)
        if isinstance(part, PreTrainedConfig) and isinstance(value, dict):
            fields, stays = divided(part, value, f"{prefix}{name}.")
            own[name], kept = {**part.to_dict(), **fields}, kept + stays
        elif OWN_FIELDS.search(name):
            own[name] = value
        elif part != value:
            kept.append(f"{prefix}{name}={part} (not {value})")
    return own, kept


def load_pretrained(recipe: Recipe, architecture: Any, config: PreTrainedConfig) -> PreTrainedModel:
    """Load the weights of the pretrained model, and print how many tensors it had; a missing head starts at random.

    ValueError for a missing tensor below the head, unless `partial_init` allows it.
    """
    init = str(recipe.model.init)
    with quiet():
        model, report = architecture.from_pretrained(
            own_folder(init), config=config, dtype="float32", output_loading_info=True, ignore_mismatched_sizes=True
        )
    tied = model.get_expanded_tied_weights_keys()
    count = sum(name not in tied for name in model.state_dict())
    shapes = {name: f"is {list(there)} there and {list(here)} here" for name, there, here in report["mismatched_keys"]}
    new = sorted({*report["missing_keys"], *shapes} - set(tied))
    base = f"{model.base_model_prefix}."
    lacking = [name for name in new if name.startswith(base) and not name.startswith(f"{base}pooler")]
    taken = f"{count - len(new)} of {count} tensors"
    if lacking and not recipe.model.partial_init:
        first = ", ".join(f"{name} {shapes.get(name, 'is missing there')}" for name in lacking[:3])
        raise ValueError(
            f"init={init!r} has {taken}: {first}{' …' * (len(lacking) > 3)}; give a model of this shape, or "
            "partial_init=true to start the others at random"
        )
    said = f"; new, and random: {', '.join(new)}" if new else ""
    if unused := sorted(report["unexpected_keys"]):
        said += f"; not used: {', '.join(unused)}"
    say(f"{taken} taken over from {init}{said}")
    return model
