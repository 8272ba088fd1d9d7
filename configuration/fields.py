"""Fields of configs: types, words, bounds, and values that follow from others."""

from collections.abc import Callable, Collection
from dataclasses import Field, field
from difflib import get_close_matches
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_origin

Value = TypeVar("Value")
Fields = dict[str, Any]

if TYPE_CHECKING:
    Derived = int
    Part = Annotated[Value, "or a dict of its fields"]
else:
    # A size, and the config of a part, that may be left out: it is filled in before anyone reads it.
    Derived = int | None
    Part = Value | dict | None


def bounded(
    default: Value | None, holds: Callable[[Value], bool], bounds: str, follows: Callable[..., object] | None = None
) -> Any:
    """Declare a field whose value keeps within bounds; None stands for the value that `follows` from the config."""

    def check(value: Value | None) -> None:
        if value is not None and not holds(value):
            raise ValueError(f"must {bounds}")

    return field(default=default, metadata={"validator": check, "follows": follows})


def at_least(
    least: int, default: int | None = None, most: float = inf, follows: Callable[..., int] | None = None
) -> int:
    """Declare a size or count; `most` bounds the length of a list."""
    bounds = f"be at least {least}" + (f" and at most {most}" if most < inf else "")
    return bounded(default, lambda value: least <= value <= most, bounds, follows)


def size_of(name: str) -> int:
    """Declare a size that is the size of another field unless it is set."""
    return at_least(1, follows=attrgetter(name))


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


def type_name(annotation: object) -> str:
    """Return the name of a type, with words that stand alone and in lists named once."""
    name = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    for part in get_args(annotation):
        name = name.replace(f"list[{part}]", "list of them") if get_origin(part) is Literal else name
    return name


def check_value(known: "Field[object]", value: object, mistake: BaseException | None) -> None:
    """Raise ValueError on a value that a field refused, with the field, the value and the type or words it has."""
    words = literal_words(known.type)
    for word in value if isinstance(value, list | tuple) else [value]:
        if words and isinstance(word, str):
            check_choice(words, known.name, word)
    said = known.name if hasattr(value, "to_dict") else f"{known.name}={value!r}"
    if isinstance(mistake, TypeError):
        default = known.default_factory() if callable(known.default_factory) else known.default
        expected = type_name(known.type)
        raise ValueError(f"{said} is of type {type(value).__name__}, expected {expected}; its default is {default!r}")
    raise ValueError(f"{said} {mistake}")
