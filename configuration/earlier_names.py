"""Names and values that earlier configs had, by which a field can still be written."""

from dataclasses import fields
from typing import Any

from transformers.utils import logging

# Properties that set the field of today, and values of one that are words today.
EARLIER_NAMES = {
    "norm_first": "norm_position",
    "scale_embedding": "embedding_multiplier",
    "scale_logits": "logit_scale",
}
EARLIER_VALUES: dict[str, dict[object, str]] = {"query_key_norm": {True: "head", False: "none"}}


def root_of_width(name: str, power: float) -> Any:
    """Return a property that is the earlier switch of a factor of `hidden_size**power`, and sets it."""

    def read(config: Any) -> bool:
        return bool(getattr(config, name) == config.hidden_size**power)

    def write(config: Any, value: object) -> None:
        setattr(config, name, config.hidden_size**power if value else 1.0)

    return property(read, write, doc=f"True where `{name}` is hidden_size**{power}.")


def value_of_today(name: str, value: object) -> object:
    """Return the word of today for a value that a field had earlier; other values stay."""
    return EARLIER_VALUES[name][value] if name in EARLIER_VALUES and isinstance(value, bool) else value


def set_earlier_names(config: Any, extras: dict[str, Any]) -> None:
    """Set fields by the names that earlier configs had, over those of a preset; a contradiction is told."""
    for name in EARLIER_NAMES.keys() & extras.keys():
        today, value = EARLIER_NAMES[name], extras.pop(name)
        before, default = getattr(config, today), {each.name: each for each in fields(config)}[today].default
        setattr(config, name, value)
        if before not in (default, getattr(config, today)):
            replaced = f"{name}={value!r}, an earlier name of {today}, replaces {today}={before!r}"
            logging.get_logger(__name__).warning(replaced)
