"""The `key=value` words of commands that use a model, known without importing what a command computes with."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
READING = {
    "text": Option(str, "column of the texts"),
    "encoding": Option(str, "encoding of the file (utf-8)"),
    "batch_size": Option(int, "rows that are computed together (16)", 1),
}
WRITING = {
    "max_new_tokens": Option(int, "most tokens of a text that is written", 1),
    "num_beams": Option(int, "beams of the search (1, greedy)", 1),
}
MEDIA = {
    "pair": Option(str, "column of the second texts, or the second text itself"),
    "image": Option(str, "column of the images"),
    "audio": Option(str, "column of the recordings"),
    "labels": Option(str, "for images and texts: what to choose from, as a,b,c or a file of lines"),
    "threshold": Option(float, "least score of an object or a contact (0.5)", 0, 1),
}
SAMPLING = {
    "temperature": Option(float, "how freely tokens are drawn, 1 as the model says; without it the best ones", 1e-6),
    "top_k": Option(int, "draw among so many tokens", 1),
    "top_p": Option(float, "draw among tokens of this share of the probability", 1e-6, 1),
    "repetition_penalty": Option(float, "what tokens that were written lose, 1 is nothing", 1e-6),
    "seed": Option(int, "seed of what is drawn (0)", 0),
}
TESTING = {
    "label": Option(str, "column of what is right: classes, numbers, tags"),
    "target": Option(str, "column of the texts to be written"),
    "pair": MEDIA["pair"],
    "image": MEDIA["image"],
    "audio": MEDIA["audio"],
    "data": Option(str, "where the data of the run are now"),
    "resamples": Option(int, "resamples of the bootstrap (1000)", 10),
    "seed": Option(int, "seed of the bootstrap (0)", 0),
}
VIEWING = {
    "row": Option(int, "row of a table (1)", 1),
    "layers": Option(str, "numbers of layers, as 0,5,-1 (all)"),
    "heads": Option(str, "numbers of heads, as 0,3 (all)"),
    "residue": Option(int, "of a model of pairs: the residue, from 0, whose pairs are shown, too", 0),
}
VIEWED = {"pair": MEDIA["pair"], "image": MEDIA["image"], "audio": MEDIA["audio"], "labels": MEDIA["labels"]}
OPTIONS = {
    "attend": {"text": READING["text"], "encoding": READING["encoding"]} | VIEWED | WRITING | SAMPLING | VIEWING,
    "predict": READING | MEDIA | WRITING,
    "generate": READING | WRITING | SAMPLING,
    "evaluate": {"text": READING["text"], "encoding": READING["encoding"]} | TESTING,
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
