"""Configs of several parts: fields given flat are shared by all parts, a part's own dict holds what differs."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import fields
from typing import Any, ClassVar

from transformers import PreTrainedConfig

from .configuration_base import HUGGING_FACE_EXTRAS, QkvConfig
from .fields import Fields

# Fields of transformers that each part keeps to itself, and those that become rotary parameters.
OF_TRANSFORMERS = frozenset(field.name for field in fields(PreTrainedConfig))
OF_ROPE = frozenset({"rope_theta", "rope_scaling"})


class CompositeConfig(QkvConfig):
    """Configure a model of several parts, each with a config of its own; `sub_configs_defaults` names their classes.

    Saved, each part is a full config.

    Args:
        encoder: Fields of the encoder that are not those given flat, or its whole config.
        decoder: Fields of the decoder that are not those given flat, or its whole config.
    """

    # {name of a part: its class}, of which transformers makes `sub_configs`.
    sub_configs_defaults: ClassVar[Fields] = {}
    # {name of a part: name of its module}, where the two differ.
    part_modules: ClassVar[dict[str, str]] = {}

    def make_parts(self, flat: Fields, **defaults: Fields) -> Fields:
        """Build every part from flat fields and its own, over its defaults; return the fields of the whole."""
        for part, config_class in self.sub_configs.items():
            shared = {**defaults.get(part, {}), **flat}
            setattr(self, part, make_part(config_class, getattr(self, part), shared))
        own, parts = {field.name for field in fields(self)}, self.sub_configs.values()
        return {name: flat[name] for name in flat if name in own or not any(takes(part, name) for part in parts)}

    @property
    def base_model_tp_plan(self) -> dict[str, str]:  # type: ignore[override]
        """Plan of tensor parallelism: those of all parts."""
        return {
            f"{self.part_modules.get(part, part)}.{name}": style
            for part in self.sub_configs
            for name, style in getattr(self, part).base_model_tp_plan.items()
        }

    @property
    def base_model_fsdp_plan(self) -> Fields:  # type: ignore[override]
        """Plan of sharding beside those of the parts, of which transformers takes the plans itself: nothing."""
        return {}

    @classmethod
    def known_fields(cls) -> set[str]:
        """Return every name that this config or one of its parts declares: shared fields are checked as well."""
        return super().known_fields().union(*(part.known_fields() for part in cls.sub_configs.values()))


def part_property(name: str, *parts: str, shared: str | None = None) -> Any:
    """Return a property that reads a field of the first part, and sets it in all if the config says `shared`."""

    def read(config: QkvConfig) -> object:
        return getattr(getattr(config, parts[0]), name)

    def write(config: QkvConfig, value: object) -> None:
        for part in parts if shared is None or getattr(config, shared) else parts[:1]:
            setattr(getattr(config, part), name, value)

    return property(read, write, doc=f"The `{name}` of `{parts[0]}`.")


def takes(config_class: type[QkvConfig], name: str) -> bool:
    """Return whether a part takes a flat field: it has the field, or fixes it and refuses another value."""
    if name in config_class.known_fields():
        return name not in OF_TRANSFORMERS
    return name in OF_ROPE or (hasattr(config_class, name) and name[0] != "_" and name not in HUGGING_FACE_EXTRAS)


def make_part(
    config_class: type[QkvConfig], part: QkvConfig | Fields | None, shared: Mapping[str, object]
) -> QkvConfig:
    """Return the config of a part from shared fields and its own differences; a finished config passes unchanged."""
    if isinstance(part, QkvConfig):
        return part
    own: Fields = {name: deepcopy(value) for name, value in shared.items() if takes(config_class, name)}
    config = config_class(**{**own, **(part or {})})
    # Auto classes load the whole; a map in each part would only repeat itself in config.json.
    del config.auto_map
    return config


def check_same_width(encoder: QkvConfig, decoder: QkvConfig) -> None:
    """Raise ValueError where cross-attention cannot read what the encoder returns."""
    source, target = encoder.hidden_size, decoder.hidden_size
    if source != target:
        raise ValueError(f"encoder hidden_size={source} and decoder hidden_size={target} differ; make them one")
