"""The `key=value` words of commands that use a model, known without importing what a command computes with."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qkv.scripts.common.resources import table
from qkv.scripts.common.words import did_you_mean
from qkv.scripts.recipes.loading import convert_plain


@dataclass(frozen=True)
class Option:
    """A word: its type, what it says, and the least and greatest number that it may be."""

    kind: type
    meaning: str
    least: float | None = None
    most: float | None = None


Options = dict[str, Any]
TYPES = {kind.__name__: kind for kind in (str, int, float)}
ROWS = table(__file__)
COMMANDS = ("attend", "predict", "generate", "evaluate")
OPTIONS = {
    command: {
        key: Option(TYPES[row["type"]], row["meaning"], row.get("least"), row.get("most"))
        for key, row in ROWS.items()
        if command in row["of"]
    }
    for command in COMMANDS
}
OF_PAIRS = ("attend",)  # the commands whose second input is the second text
# Other names that people type; those with a dot are the words of `qkv train`.
ALIASES = {
    "text.column": "text", "text.pair": "pair", "text.label": "label", "text.target": "target", "column": "text",
    "candidate_labels": "labels", "bs": "batch_size", "max_tokens": "max_new_tokens", "beams": "num_beams",
}  # fmt: skip
WORD = re.compile(r"(?P<key>[A-Za-z_][\w.-]*)=(?P<value>.*)", re.DOTALL)


def read_words(command: str, words: Sequence[str]) -> tuple[str | None, Options]:
    """Return the input among the words of a command, if there is one, and its options.

    ValueError for an unknown option, a value that does not fit, and a second input.
    """
    given: list[str] = []
    options: Options = {}
    for word in words:
        match = WORD.fullmatch(word)
        if match is None:  # no `=` behind a first name
            given.append(word)
            continue
        key = match["key"].replace("-", "_")
        key = ALIASES.get(key, key)
        if key not in OPTIONS[command]:
            raise ValueError(f"unknown option {match['key']!r}; {did_you_mean(key, list(OPTIONS[command]), 'options')}")
        options[key] = value_of(key, match["value"], OPTIONS[command][key])
    if len(given) == 2 and command in OF_PAIRS and "pair" not in options:
        options["pair"] = given.pop()
    if len(given) > 1:
        raise ValueError(
            f"{given[1]!r} is a second input after {given[0]!r}; put a text between quotation marks, as in "
            f'qkv {command} runs/first "Once upon a time"'
        )
    return (given[0] if given else None), options


def value_of(key: str, value: str, option: Option) -> Any:
    """Return the value of an option; ValueError where it is of another type or out of bounds."""
    checked = convert_plain(key, value, option.kind)
    if option.least is not None and checked < option.least:
        raise ValueError(f"{key}={value} must be at least {option.least}")
    if option.most is not None and checked > option.most:
        raise ValueError(f"{key}={value} must be at most {option.most}")
    return checked
