"""Base of all configs: checked values, misspelt fields refused, and the `auto_map` that a saved folder needs."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import field, fields
from difflib import get_close_matches
from functools import cache, wraps
from inspect import getattr_static
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig
from transformers.utils import logging

from .docstrings import list_fields, spell_type
from .fields import check_choice, literal_words
from .labels import check_numbers, numbered

# Names that transformers itself hands to a config without declaring them as fields, and settings of generation that
# look like a misspelt field.
HUGGING_FACE_EXTRAS = frozenset(
    "num_labels attn_implementation experts_implementation output_attentions torch_dtype rope_scaling rope_theta "
    "per_layer_config name_or_path auto_map quantization_config model_type transformers_weights use_return_dict "
    "task_specific_params custom_pipelines num_items_in_batch partial_rotary_factor tie_word_embeddings use_cache "
    "pad_token_id bos_token_id eos_token_id cls_token_id sep_token_id mask_token_id unk_token_id "
    "forced_bos_token_id forced_eos_token_id max_length".split()
)
# The words of fields that transformers declares, but does not check.
TRANSFORMERS_WORDS = {
    "problem_type": ("regression", "single_label_classification", "multi_label_classification"),
    "dtype": ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"),
}

# Whether a config is read from a file: nobody types its fields, and a misspelt one must not lock its model up.
reading_saved: ContextVar[bool] = ContextVar("reading_saved", default=False)
logger = logging.get_logger(__name__)

Value = TypeVar("Value")
Config = TypeVar("Config", bound="QkvConfig")
ConfigClass = TypeVar("ConfigClass", bound=type)

if TYPE_CHECKING:
    Derived = int
else:
    # A size that may be left out and is filled in before anyone reads it.
    Derived = int | None


def bounded(default: Value | None, holds: Callable[[Value], bool], bounds: str) -> Any:
    """Declare a field whose value, unless it is None, keeps within bounds."""

    def check(value: Value | None) -> None:
        if value is not None and not holds(value):
            raise ValueError(f"must {bounds}")

    return field(default=default, metadata={"validator": check})


def at_least(least: int, default: int | None = None, most: float = inf) -> int:
    """Declare a size or count; `most` bounds one that lists are made of."""
    bounds = f"be at least {least}" + (f" and at most {most}" if most < inf else "")
    return bounded(default, lambda value: least <= value <= most, bounds)


def positive(default: float | None = None) -> float:
    """Declare a factor, scale or tolerance."""
    factor: float = bounded(default, lambda value: 0 < value < inf, "be positive and finite")
    return factor


def rate(default: float = 0.0) -> float:
    """Declare a probability below 1."""
    probability: float = bounded(default, lambda value: 0 <= value < 1, "lie in [0, 1), for example 0.1")
    return probability


def checked(config_class: ConfigClass) -> ConfigClass:
    """Check the values of a dataclass as `strict` does, with errors of one sentence, and list its fields for `help`."""
    inherited = config_class.__setattr__
    checked_class: Any = strict(config_class)
    # PreTrainedConfig's own already runs the validators of every subclass, once is enough.
    checked_class.__setattr__ = inherited
    checked_class.__init__ = in_one_sentence(checked_class.__init__)
    checked_class.validate = in_one_sentence(checked_class.validate)
    list_fields(checked_class)
    return config_class


def in_one_sentence(method: Callable[..., None]) -> Callable[..., None]:
    """Wrap a method of `strict` so that it raises the cause alone, as a ValueError."""

    @wraps(method)
    def plain(*args: object, **kwargs: object) -> None:
        try:
            method(*args, **kwargs)
        except StrictDataclassError as error:
            raise ValueError(str(error.__cause__ or error)) from None

    return plain


def model_configs() -> "list[type[QkvConfig]]":
    """Return the config class of every model type."""
    classes: list[type[QkvConfig]] = [QkvConfig]
    for config_class in classes:
        classes += config_class.__subclasses__()
    return [each for each in classes if each.model_type]


def owner_of(name: str) -> str | None:
    """Return the config that has a field of this name, one that models are loaded by before a part of another."""
    owners = [each for each in model_configs() if name in {field.name for field in fields(each)}]
    return min(owners, key=lambda each: not each.auto_classes).__name__ if owners else None


@cache
def declared(config_class: Any, name: str) -> tuple[bool, Any]:
    """Return whether a name is a field that may be set, and what the class has by that name: a value or a property.

    Looking both up takes most of the time of an assignment, and a config makes a hundred.
    """
    field = config_class.__dataclass_fields__.get(name)
    return field is not None and "ClassVar" not in str(field.type), getattr_static(config_class, name, None)


def check_or_warn(config_class: "type[QkvConfig]", name: str, value: object) -> None:
    """Raise ValueError on a misspelt field; warn of one that a saved config has."""
    try:
        config_class.check_spelling(name)
    except ValueError as error:
        if not reading_saved.get():
            raise
        logger.warning(f"{error}; {name}={value!r} of the saved config is kept and changes nothing")


def pop_changes(config_class: "type[QkvConfig]", given: dict[str, object]) -> dict[str, object]:
    """Take fields out of what was typed beside a saved config, and return them."""
    own = {field.name for field in fields(config_class)}
    for name in given:
        config_class.check_spelling(name)
        if name in config_class.known_fields() - own and not hasattr(config_class, name):
            kind = config_class.__name__
            raise ValueError(f"{name} belongs to the parts of a saved {kind}; change it in one of them")
    changes = {name: given.pop(name) for name in own & set(given) - set(config_class.sub_configs)}
    if changes.get("dtype") == "auto":  # the saved one
        del changes["dtype"]
    return changes


@checked
class QkvConfig(PreTrainedConfig):
    """Check what transformers silently keeps: a wrong value or misspelt field raises, with what was probably meant.

    `auto_classes` is written into every saved config as the full `auto_map`, so one folder serves all its heads. Its
    files are those of a published copy, which has one for the config and one for all models of a family.
    """

    auto_classes: ClassVar[dict[str, str]] = {}
    # The package checks saved configs, which anybody may have written; a published copy reads its config alone.
    check_saved: ClassVar[Callable[[dict[str, object]], dict[str, object]] | None] = None

    def __post_init__(self, **kwargs: object) -> None:
        self.check_extras(kwargs)
        kwargs.setdefault("auto_map", dict(self.auto_classes))
        # transformers looks through them where an Auto class has several models for a config.
        self.architectures: list[str] | None = self.architectures or []
        self.id2label = numbered(self.id2label)
        check_numbers(self.label2id, labelled=self.id2label is not None)
        super().__post_init__(**kwargs)

    def check_extras(self, extras: dict[str, object]) -> None:
        """Raise ValueError on a misspelt field among the extras, and on a wrong number of labels."""
        for name, value in extras.items():
            check_or_warn(type(self), name, value)
        labels = extras.get("num_labels")
        if labels is not None and (type(labels) is not int or not 1 <= labels <= 10**6):
            raise ValueError(f"num_labels={labels!r} must be a whole number of at least 1 and at most 1000000")

    def __setattr__(self, name: str, value: object) -> None:
        kind = type(self)  # what is looked up on a config itself goes through transformers' own `__getattribute__`
        kind.check_word(name, value)
        if kind.follows(self, name, value):
            return
        kind.check_fixed(name, value)
        try:
            super().__setattr__(name, value)
        except StrictDataclassError as error:
            reason, field = str(error.__cause__), self.__dataclass_fields__[name]
            if isinstance(error.__cause__, TypeError):
                given_type, wanted = type(value).__name__, spell_type(field.type)
                reason = f"is of type {given_type}, expected {wanted}; its default is {field.default!r}"
            given = name if isinstance(value, PreTrainedConfig) else f"{name}={value!r}"
            raise ValueError(f"{given} {reason}") from None

    @property
    def output_attentions(self) -> bool:
        """True to return attention weights; allowed with every implementation, for models then attend eagerly."""
        return bool(self._output_attentions)

    @output_attentions.setter
    def output_attentions(self, value: bool) -> None:
        self._output_attentions = value

    def validate_output_attentions(self) -> None:
        """Check nothing: every attention implementation may return weights here."""

    @classmethod
    def from_dict(cls: type[Config], config_dict: dict[str, object], **kwargs: object) -> Config:
        """Make a config of a dict, changes checked as on construction: `from_pretrained(folder, image_size=32)`."""
        if cls.check_saved is not None:
            cls.check_saved(config_dict)
        kind = config_dict.get("model_type", cls.model_type)
        if kind != cls.model_type:
            raise ValueError(
                f"config of model_type={kind!r} is not one for {cls.__name__}, which needs {cls.model_type!r}; use "
                "AutoConfig, or qkv.from_transformers for an official checkpoint"
            )
        changes = pop_changes(cls, kwargs)
        token = reading_saved.set(True)
        try:
            return super().from_dict({**config_dict, **changes}, **kwargs)
        finally:
            reading_saved.reset(token)

    @classmethod
    def known_fields(cls) -> set[str]:
        """Return the name of every field."""
        return {field.name for field in fields(cls)}

    @classmethod
    def check_spelling(cls, name: str) -> None:
        """Raise ValueError on a misspelt field (`hiden_size`) or one of another config; transformers' extras pass."""
        known = cls.known_fields()
        if name in known or name in HUGGING_FACE_EXTRAS or hasattr(cls, name) or name[0] == "_":
            return
        if close := get_close_matches(name.lower(), sorted(known), n=1, cutoff=0.72):
            raise ValueError(f"{cls.__name__} has no field {name!r}; did you mean {close[0]!r}?")
        if other := owner_of(name):
            raise ValueError(f"{cls.__name__} has no field {name!r}, which is one of {other}; leave it out")

    @classmethod
    def check_word(cls, name: str, value: object) -> None:
        """Raise ValueError on a word that the field does not have, naming the nearest."""
        field = cls.__dataclass_fields__.get(name)
        words = TRANSFORMERS_WORDS.get(name) or (literal_words(field.type) if field else ())
        if not words:
            return
        kinds = (str, int, float) if name in TRANSFORMERS_WORDS else str  # transformers takes a number for a word
        given = [*value.values()] if isinstance(value, dict) else value  # dtypes of parts
        for word in given if isinstance(given, list | tuple) else (given,):
            if isinstance(word, kinds):
                check_choice(words, name, word)

    def follows(self, name: str, value: object) -> bool:
        """Return True for what the config derives and has already, which tools set after what it follows from."""
        _, fixed = declared(type(self), name)  # type: ignore[arg-type]  # mypy takes __hash__ of instances
        return isinstance(fixed, property) and fixed.fset is None and bool(getattr(self, name) == value)

    @classmethod
    def check_fixed(cls, name: str, value: object) -> None:
        """Raise ValueError on another value for a constant of the class, and on any for what it derives."""
        settable, fixed = declared(cls, name)  # type: ignore[arg-type]
        if settable or name.startswith("_"):
            return
        if isinstance(fixed, property) and fixed.fset is None:
            raise ValueError(f"{name}={value!r} cannot be set, {cls.__name__} derives it from its fields; set those")
        constant = isinstance(fixed, int | float | str) or (fixed is None and name in cls.__dataclass_fields__)
        if constant and fixed != value:
            raise ValueError(f"{name}={value!r} is not for {cls.__name__}, where it is always {fixed!r}; leave it out")
