"""Words of fields, and fields that follow from others."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Literal, get_args, get_origin


def check_choice(words: Collection[str], name: str, word: object) -> None:
    """Raise ValueError where a word is not one of these, naming the nearest."""
    if word in words:
        return
    close = get_close_matches(str(word), words, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"{name}={word!r} is not one of {', '.join(words)}{hint}")


@cache
def literal_words(annotation: object) -> tuple[str, ...]:
    """Return the words of a Literal, alone or inside a list or union; none for other types."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return tuple(dict.fromkeys(word for part in get_args(annotation) for word in literal_words(part)))


def fill_in(config: object, derived: Mapping[str, object]) -> None:
    """Set the fields that were left out to what follows from others."""
    for name, value in derived.items():
        if getattr(config, name) is None:
            setattr(config, name, value)
