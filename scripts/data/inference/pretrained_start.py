"""Fit what is inferred from own data to the architecture that is asked for, and to the pretrained model."""

import re
from typing import Any

from qkv import modeling
from qkv.scripts.data.pretrained import OWN_FIELDS, config_of_init, most_tokens
from qkv.scripts.recipes.schema import Fields

PROBLEM = re.compile("problem_type")  # what is learned, whatever the head was
OTHERS = {"ForCausalLM": "ForMaskedLM"}  # learned from the same data
SLOWER = 10  # times: a pretrained model is changed in smaller steps than a new one is made in


def fitted(values: Fields, given: Fields) -> Fields:
    """Return inferred fields with the architecture, learning rate and length that fit `init`, and fields of its config.

    `given` are those that are asked for; of a pretrained model the shape is its own.
    """
    if given.get("init") is not None:
        values = started_from(config_of_init(str(given["init"])), values)
    architecture: Any = getattr(modeling, str(given.get("architecture", values["architecture"])), None)
    if architecture is None:
        return values
    known = architecture.config_class.known_fields()
    return values | {"model": {name: value for name, value in values["model"].items() if name in known}}


def started_from(config: Any, values: Fields) -> Fields:
    """Return inferred fields for a pretrained model."""
    family = type(config).__name__.removesuffix("Config")
    inferred: Any = getattr(modeling, values["architecture"])
    head = values["architecture"].removeprefix(inferred.config_class.__name__.removesuffix("Config"))
    has_head = any(name.endswith(head) for name in config.architectures or ())
    kept = OWN_FIELDS if not has_head else PROBLEM
    limit, text = most_tokens(config), values.get("text", {})
    if limit is not None and "length" in text:
        values = values | {"text": text | {"length": min(text["length"], limit)}}
    fitting = (family + other for other in (head, OTHERS.get(head, head)) if "For" in head)
    values = values | {
        "architecture": next((name for name in fitting if hasattr(modeling, name)), values["architecture"])
    }
    model = {name: value for name, value in values["model"].items() if kept.search(name)}
    return values | {"model": model, "learning_rate": float(values["learning_rate"]) / SLOWER}
