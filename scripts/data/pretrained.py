"""The model that a training starts from, as data and tasks read it: its folder, config, classes and processors."""

import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from qkv import modeling
from qkv.configuration.axes import TABLE_POSITIONS
from qkv.modeling.conversion.convert import chosen, conversions_of, is_ours
from qkv.modeling.conversion.files import located, named
from qkv.scripts.recipes.schema import Fields

# Fields of training and of the head; all others come from the pretrained model.
OWN_FIELDS = re.compile(
    "dropout|drop_path|layerdrop|smoothing|initializer|pooling|problem_type|num_labels|id2label|label2id|"
    "head_(act|bias|transform)|ctc_|apply_spec_augment|mask_(time|feature)|auxiliary_loss|_cost|_coefficient"
)
SLOWER = 10  # times: a pretrained model is changed in smaller steps than a new one is made in


@cache
def pretrained_folder(init: str) -> Path:
    """Return the folder of a run's model, a model folder or a Hub id; ValueError where there is none."""
    try:
        folder = located(init)
    except ValueError as error:
        raise ValueError(f"init={init!r}: {error}; give a run such as runs/first, a model folder or a Hub id") from None
    inner = next((place for place in (folder, folder / "model") if (place / "config.json").is_file()), None)
    if inner is None:
        raise ValueError(f"init={init!r} holds no config.json; give a run such as runs/first, or a model folder")
    return inner


def pretrained_values(init: str | None) -> dict[str, Any]:
    """Return the fields of a pretrained model's config; none without one."""
    if init is None:
        return {}
    values: dict[str, Any] = json.loads((pretrained_folder(init) / "config.json").read_text(encoding="utf-8"))
    return values


@cache
def config_of_init(init: str) -> Any:
    """Return the config of a pretrained model; a stock config is converted, and names our class."""
    folder = pretrained_folder(init)
    try:
        config = AutoConfig.from_pretrained(folder)
        if is_ours(folder):
            return config
        conversion = chosen(conversions_of(*named(folder)), config)
    except ValueError as error:
        raise ValueError(f"init={init!r}: {error}") from None
    config = conversion.read(config)
    config.architectures = [conversion.ours]
    return config


def part_configs(config: Any) -> list[Any]:
    """Return the configs of a model's parts, or the config itself where there are none."""
    return [getattr(config, name) for name in config.sub_configs] or [config]


def text_configs(config: Any) -> list[Any]:
    """Return the configs of the parts of a model that have positions for the tokens of a text."""
    texts = [part for part in part_configs(config) if getattr(part, "frontend", "tokens") == "tokens"]
    return [part for part in texts if hasattr(part, "max_position_embeddings")]


def most_tokens(config: Any) -> int | None:
    """Return the tokens of the longest text that a model has positions for; None where no table of them ends."""
    tables = [part.max_position_embeddings for part in text_configs(config) if part.position in TABLE_POSITIONS]
    return min(tables, default=None)


def is_regression(init: str | None) -> bool:
    """Tell whether a pretrained model gives one number for a text."""
    values = pretrained_values(init)
    classifies = any("SequenceClassification" in name for name in values.get("architectures") or ())
    return classifies and len(values.get("id2label", {0: "", 1: ""})) == 1


def pretrained_classes(init: str | None, known: Iterable[str], head: str = "Classification") -> list[str]:
    """Return the classes of a pretrained head in their order if they include all `known` ones, else `known`."""
    values, own = pretrained_values(init), list(known)
    names = [name for _, name in sorted(values.get("id2label", {}).items(), key=lambda item: int(item[0]))]
    has_head = any(head in name for name in values.get("architectures") or ())
    return names if has_head and set(own) <= set(names) else own


def fitted(values: Fields, given: Fields) -> Fields:
    """Fit inferred fields to the architecture and the pretrained model in `given`."""
    if given.get("init") is not None:
        values = started_from(config_of_init(str(given["init"])), values)
    architecture: Any = getattr(modeling, str(given.get("architecture", values["architecture"])), None)
    known = architecture.config_class.known_fields() if architecture else values["model"]
    return values | {"model": {name: value for name, value in values["model"].items() if name in known}}


def started_from(config: Any, values: Fields) -> Fields:
    """Return inferred fields for a pretrained model: its family, shape and longest text, and smaller steps."""
    family = type(config).__name__.removesuffix("Config")
    inferred: Any = getattr(modeling, values["architecture"])
    head = values["architecture"].removeprefix(inferred.config_class.__name__.removesuffix("Config"))
    has_head, limit, text = any(name.endswith(head) for name in config.architectures or ()), most_tokens(config), {}
    if limit is not None and "length" in values.get("text", {}):
        text = {"text": values["text"] | {"length": min(values["text"]["length"], limit)}}
    # A family of encoders learns from texts alone by filling in masks.
    fitting = [family + other for other in (head, head.replace("ForCausalLM", "ForMaskedLM")) if "For" in head]
    name = next((name for name in fitting if hasattr(modeling, name)), values["architecture"])
    kept = re.compile("problem_type") if has_head else OWN_FIELDS
    model = {name: value for name, value in values["model"].items() if kept.search(name)}
    rate = float(values["learning_rate"]) / SLOWER
    return values | text | {"architecture": name, "model": model, "learning_rate": rate}
