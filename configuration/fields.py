"""Fields of configs: types, words, bounds, and values that follow from others."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, field
from difflib import get_close_matches
from math import inf
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

Value = TypeVar("Value")
Fields = dict[str, Any]

if TYPE_CHECKING:
    Derived = int
    Part = Annotated[Value, "or a dict of its fields"]
else:
    # A size, and the config of a part, that may be left out: it is filled in before anyone reads it.
    Derived = int | None
    Part = Value | dict | None


def bounded(default: Value | None, holds: Callable[[Value], bool], bounds: str) -> Any:
    """Declare a field whose value, unless it is None, keeps within bounds."""

    def check(value: Value | None) -> None:
        if value is not None and not holds(value):
            raise ValueError(f"must {bounds}")

    return field(default=default, metadata={"validator": check})


def at_least(least: int, default: int | None = None, most: float = inf) -> int:
    """Declare a size or count; `most` bounds the length of a list."""
    bounds = f"be at least {least}" + (f" and at most {most}" if most < inf else "")
    return bounded(default, lambda value: least <= value <= most, bounds)


def positive(default: float | None = None) -> float:
    """Declare a factor, scale or tolerance."""
    return bounded(default, lambda value: 0 < value < inf, "be positive and finite")


def rate(default: float = 0.0) -> float:
    """Declare a probability below 1."""
    return bounded(default, lambda value: 0 <= value < 1, "lie in [0, 1), for example 0.1")


def check_choice(words: Collection[str], name: str, word: object) -> None:
    """Raise ValueError on an unknown word, naming the nearest."""
    if word not in words:
        close = get_close_matches(str(word), words, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{name}={word!r} is not one of {', '.join(words)}{hint}")


def literal_words(annotation: object) -> tuple[str, ...]:
    """Return the words of a Literal, alone or inside a list or union; none for other types."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return tuple(dict.fromkeys(word for part in get_args(annotation) for word in literal_words(part)))


def spell_type(annotation: object) -> str:
    """Return a type in words: `int or None`."""
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(map(spell_type, get_args(annotation)))
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__.replace("NoneType", "None")
    return str(annotation).replace("typing.", "")


def check_value(known: "Field[object]", value: object, mistake: BaseException | None) -> None:
    """Raise ValueError on a value that a field refused, with the field, the value and the type or words it has."""
    words = literal_words(known.type)
    for word in value if isinstance(value, list | tuple) else [value]:
        if words and isinstance(word, str):
            check_choice(words, known.name, word)
    said = known.name if hasattr(value, "to_dict") else f"{known.name}={value!r}"
    if isinstance(mistake, TypeError):
        default = known.default_factory() if callable(known.default_factory) else known.default
        expected = f"{spell_type(known.type)}; its default is {default!r}"
        raise ValueError(f"{said} is of type {type(value).__name__}, expected {expected}")
    raise ValueError(f"{said} {mistake}")


def fill_in(config: object, derived: Mapping[str, object]) -> None:
    """Set the fields that were left out to values that follow from others."""
    for name, value in derived.items():
        if getattr(config, name) is None:
            setattr(config, name, value)
