"""Configs of several parts: fields given flat are shared by all parts, a part's own dict holds what differs."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import fields
from typing import Any, ClassVar

from .configuration_base import HUGGING_FACE_EXTRAS, QkvConfig, checked

# Fields of transformers that each part keeps to itself.
OF_TRANSFORMERS = frozenset(
    "transformers_version architectures output_hidden_states return_dict dtype chunk_size_feed_forward "
    "is_encoder_decoder id2label label2id problem_type".split()
)


@checked
class CompositeConfig(QkvConfig):
    """Configure a model of several parts, each with a config of its own; `sub_configs_defaults` names their classes.

    Saved, each part is a full config.
    """

    # {name of a part: its class}, of which transformers makes `sub_configs`.
    sub_configs_defaults: ClassVar[dict[str, Any]] = {}
    # {name of a part: name of its module}, where the two differ.
    part_modules: ClassVar[dict[str, str]] = {}

    def make_parts(self, given: dict[str, object], **defaults: Mapping[str, object]) -> dict[str, object]:
        """Build every part from flat fields and its own, over its defaults; return what belongs to the whole."""
        own = {field.name for field in fields(self)}
        for part, config_class in self.sub_configs.items():
            for name in given.keys() - own - config_class.known_fields() - HUGGING_FACE_EXTRAS:
                config_class.check_fixed(name, given[name])
            setattr(self, part, make_part(config_class, getattr(self, part), {**defaults.get(part, {}), **given}))
        return {name: value for name, value in given.items() if name in own or name not in self.known_fields()}

    @property
    def base_model_tp_plan(self) -> dict[str, str]:  # type: ignore[override]
        """Plan of tensor parallelism: those of all parts."""
        return {
            f"{self.part_modules.get(part, part)}.{name}": style
            for part in self.sub_configs
            for name, style in getattr(self, part).base_model_tp_plan.items()
        }

    @property
    def base_model_fsdp_plan(self) -> dict[Any, str]:  # type: ignore[override]
        """Plan of sharding beside those of the parts, of which transformers takes the plans itself: nothing."""
        return {}

    @classmethod
    def known_fields(cls) -> set[str]:
        """Return every name that this config or one of its parts declares: shared fields are checked as well."""
        return super().known_fields().union(*(part.known_fields() for part in cls.sub_configs.values()))


def part_property(name: str, *parts: str, doc: str, shared: str | None = None) -> Any:
    """Return a property that reads a field of the first part, and sets it in all if the config says `shared`."""

    def read(config: Any) -> Any:
        return getattr(getattr(config, parts[0]), name)

    def write(config: Any, value: Any) -> None:
        for part in parts if shared is None or getattr(config, shared) else parts[:1]:
            setattr(getattr(config, part), name, value)

    return property(read, write, doc=doc)


def make_part(
    config_class: type[QkvConfig], given: QkvConfig | Mapping[str, object] | None, shared: Mapping[str, object]
) -> QkvConfig:
    """Return the config of a part from shared fields and its own differences; a finished config passes unchanged."""
    if isinstance(given, QkvConfig):
        return given
    declared = config_class.known_fields() - OF_TRANSFORMERS
    own: dict[str, Any] = {name: deepcopy(value) for name, value in shared.items() if name in declared}
    config = config_class(**{**own, **(given or {})})
    # Auto classes load the whole; a map in each part would only repeat itself in config.json.
    del config.auto_map
    return config


def check_same_width(encoder: QkvConfig, decoder: QkvConfig) -> None:
    """Raise ValueError where cross-attention cannot read what the encoder returns."""
    if encoder.hidden_size != decoder.hidden_size:
        raise ValueError(
            f"encoder hidden_size={encoder.hidden_size} differs from decoder hidden_size={decoder.hidden_size}; "
            "cross-attention reads the encoder's output at the decoder's width"
        )
