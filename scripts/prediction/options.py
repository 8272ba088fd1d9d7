"""The `key=value` words of commands that use a model, known without importing torch."""

import re
from collections.abc import Sequence
from typing import Any

from qkv.scripts.common.files import table
from qkv.scripts.common.words import did_you_mean
from qkv.scripts.recipes.fields import numbers
from qkv.scripts.recipes.loading import convert

Options = dict[str, Any]
COMMANDS = ("attend", "predict", "generate", "evaluate")
ROWS = table(__file__)
# The sentence about each option, by command.
OPTIONS = {command: {key: row["meaning"] for key, row in ROWS.items() if command in row["of"]} for command in COMMANDS}
OF_PAIRS = ("attend",)  # the commands whose second input is the second text
# The words of `qkv train` for the same columns.
ALIASES = {"text.column": "text", "question": "pair"} | {f"text.{key}": key for key in ("pair", "label", "target")}
WORD = re.compile(r"(?P<key>[A-Za-z_][\w.-]*)=(?P<value>.*)", re.DOTALL)


def read_words(command: str, words: Sequence[str]) -> tuple[str | None, Options]:
    """Return the input among the words of a command, if any, and its options.

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
        options[key] = convert(key, match["value"], getattr(numbers, ROWS[key].get("type", ""), str))
    if len(given) == 2 and command in OF_PAIRS and "pair" not in options:
        options["pair"] = given.pop()
    if len(given) > 1:
        raise ValueError(
            f"{given[1]!r} is a second input after {given[0]!r}; put a text between quotation marks, as in "
            f'qkv {command} runs/first "Once upon a time"'
        )
    return (given[0] if given else None), options
