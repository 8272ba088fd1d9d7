"""Words that users type and read: spelling suggestions, choices and numbers."""

from argparse import ArgumentTypeError
from collections.abc import Sequence
from difflib import get_close_matches


def nearest(word: str, known: Sequence[str], cutoff: float = 0.6) -> str | None:
    """Return the nearest known word, if one is near."""
    return next(iter(get_close_matches(word, known, n=1, cutoff=cutoff)), None)


def did_you_mean(word: str, known: Sequence[str], what: str) -> str:
    """Suggest the nearest known word, or list all known words."""
    close = nearest(word, known)
    return f"did you mean {close!r}?" if close else f"the {what} are {', '.join(known)}"


def check_known(key: str, known: Sequence[str]) -> None:
    """Raise ValueError for a key that is not known."""
    if key not in known:
        raise ValueError(f"unknown key {key!r}; {did_you_mean(key, known, 'keys')}")


def either(words: Sequence[str]) -> str:
    """Join words to a choice: `a, b or c`."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def positive(text: str) -> int:
    """Return a whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text} is no whole number from 1 on")
    return int(text)
