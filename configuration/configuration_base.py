"""What every qkv config shares: strict words, near-miss detection, and the map that makes a saved folder loadable."""

from dataclasses import fields
from difflib import get_close_matches
from functools import wraps
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin

from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError
from transformers import GenerationConfig, PreTrainedConfig

# Names that transformers itself hands to a config without declaring them as fields.
HUGGING_FACE_EXTRAS = frozenset(
    "num_labels attn_implementation experts_implementation output_attentions torch_dtype rope_scaling rope_theta "
    "per_layer_config name_or_path auto_map quantization_config model_type transformers_weights use_return_dict "
    "task_specific_params custom_pipelines num_items_in_batch".split()
)


ConfigClass = TypeVar("ConfigClass", bound=type)


def checked(config_class: ConfigClass) -> ConfigClass:
    """`strict`, with each error cut down to the one sentence that says what is wrong and how to mend it."""
    config_class = strict(config_class)
    strict_init, strict_setattr = config_class.__init__, config_class.__setattr__

    @wraps(strict_init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            strict_init(self, *args, **kwargs)
        except StrictDataclassError as error:
            raise ValueError(str(error.__cause__ or error)) from None

    def __setattr__(self: Any, name: str, value: Any) -> None:
        self.refuse_unknown_word(name, value)
        try:
            strict_setattr(self, name, value)
        except StrictDataclassError as error:
            raise ValueError(str(error.__cause__ or error)) from None

    config_class.__init__, config_class.__setattr__ = __init__, __setattr__
    return config_class


def literal_words(config_class: type, name: str) -> tuple[str, ...]:
    """The words a field accepts, or an empty tuple when the field is not a `Literal` of strings."""
    field = getattr(config_class, "__dataclass_fields__", {}).get(name)
    words = get_args(field.type) if field is not None and get_origin(field.type) is Literal else ()
    return tuple(word for word in words if isinstance(word, str))


@checked
class QkvConfig(PreTrainedConfig):
    """Refuse what a config silently keeps: wrong words and misspelt fields raise, each with the word that was meant.

    `auto_classes` is written into every saved config as the full `auto_map`, so one folder serves all its heads.
    """

    auto_classes: ClassVar[dict[str, str]] = {}

    def __post_init__(self, **kwargs: Any) -> None:
        for name in kwargs:
            self.refuse_misspelling(name)
        kwargs.setdefault("auto_map", dict(self.auto_classes))
        super().__post_init__(**kwargs)

    @classmethod
    def known_fields(cls) -> set[str]:
        """Every name this config declares."""
        return {field.name for field in fields(cls)}

    @classmethod
    def refuse_misspelling(cls, name: str) -> None:
        """Raise when an undeclared name is close to a declared one (`hiden_size`); Hugging Face's own extras pass."""
        known = cls.known_fields()
        generation = GenerationConfig._get_default_generation_params()
        if name in known or name in HUGGING_FACE_EXTRAS or name in generation or name.startswith("_"):
            return
        if close := get_close_matches(name, sorted(known), n=1, cutoff=0.8):
            raise ValueError(f"{cls.__name__} has no field {name!r}; did you mean {close[0]!r}?")

    @classmethod
    def refuse_unknown_word(cls, name: str, value: object) -> None:
        """Raise when the value of a `Literal` field is not one of its words, naming the nearest one."""
        words = literal_words(cls, name)
        if not words or value in words:
            return
        close = get_close_matches(str(value), words, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{name}={value!r} is not one of {', '.join(words)}{hint}")

    def validate_label_smoothing(self) -> None:
        """Smoothing takes probability from the right class, so it lies in [0, 1)."""
        smoothing = getattr(self, "label_smoothing", 0.0)
        if not 0 <= smoothing < 1:
            raise ValueError(f"label_smoothing={smoothing} must lie in [0, 1); 0.1 is the usual value")
