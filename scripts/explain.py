"""Explain a word: a field, a word of a field, an architecture, preset, recipe, task, data set, metric or command."""

import re
import shutil
from argparse import Namespace
from collections.abc import Iterator
from functools import cache
from textwrap import wrap

from qkv.scripts.arguments import COMMANDS, about, parser_of
from qkv.scripts.common.words import nearest
from qkv.scripts.explanation import models, trainings
from qkv.scripts.explanation.entries import Entry
from qkv.scripts.prediction.options import OPTIONS
from qkv.scripts.recipes.fields.aliases import ALIASES

INDENT = "  "


def explain_commands() -> Iterator[Entry]:
    """Explain each command."""
    for name in COMMANDS:
        description, example = about(name)
        yield Entry((name,), "command", description, example=example)


OPTION = "option of qkv "


def explain_options() -> Iterator[Entry]:
    """Explain each option of commands, and of those that use a model also what is written without dashes."""
    told: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for command in COMMANDS:
        options = {tuple(action.option_strings): action.help for action in parser_of(command)._actions}
        options |= {(name,): option.meaning for name, option in OPTIONS.get(command, {}).items()}
        for names, meaning in options.items():
            if names and meaning:
                told.setdefault((names, meaning), []).append(command)
    for (names, meaning), commands in told.items():
        yield Entry(names, OPTION + ", ".join(commands), f"{meaning[:1].upper()}{meaning[1:]}.")


SECTIONS = (
    explain_commands,
    trainings.explain_recipes,
    trainings.explain_fields,
    trainings.explain_answers,
    explain_options,
    trainings.explain_tasks,
    trainings.explain_data,
    trainings.explain_metrics,
    trainings.explain_launchers,
    trainings.explain_devices,
    models.explain_presets,
    models.explain_conversions,
    models.explain_architectures,
    models.explain_config_fields,
    models.explain_words,
)


def run(arguments: Namespace) -> None:
    """Print all that a word means; ValueError, with the nearest word, where it means nothing."""
    width = min(shutil.get_terminal_size().columns, 100)
    joint = "=" if arguments.word[0].startswith("-") else " "  # --lr 1e-3 is lr=1e-3
    print("\n\n".join(spelled(entry, width) for entry in explanations(joint.join(arguments.word))))


def explanations(typed: str) -> list[Entry]:
    """Return what a word means, or what it is another name of; of `key=value` what both mean.

    An option of a command is meant where a word begins with dashes, or means nothing else.
    """
    wanted = {plain(name) for word in typed.split("=") for name in (word, *fields_named(word))}
    if entries := [entry for entry in all_entries() if wanted & set(map(plain, entry.names))]:
        others = [entry for entry in entries if not entry.kind.startswith(OPTION)]
        return entries if typed.startswith("-") else others or entries
    words = sorted({name for entry in all_entries() for name in entry.names} | ALIASES.keys())
    longer = (word for word in words if plain(word).startswith(plain(typed)))
    close = next(longer, None) or nearest(typed, words)
    hint = f"did you mean {close!r}?" if close else "qkv --help lists the commands, qkv train RECIPE --help the fields"
    raise ValueError(f"there is nothing called {typed!r} here; {hint}")


def plain(word: str) -> str:
    """Return a word without what is typed in several ways: masked-lm, masked_lm, MaskedLM."""
    return re.sub(r"[-_\s]", "", word).lower()


def fields_named(typed: str) -> list[str]:
    """Return the fields that a word is another name of."""
    return next((fields for name, fields in ALIASES.items() if plain(name) == plain(typed)), [])


@cache
def all_entries() -> tuple[Entry, ...]:
    """Return everything that can be explained."""
    return tuple(entry for section in SECTIONS for entry in section())


def spelled(entry: Entry, width: int) -> str:
    """Return an entry as it is printed: a heading, the explanation, facts, the source and an example."""
    lines = wrap(f"{entry.names[0]}: {entry.kind}", width)
    for paragraph in entry.text.split("\n\n"):
        lines += ["", *wrap(" ".join(paragraph.split()), width, initial_indent=INDENT, subsequent_indent=INDENT)]
    facts = {**entry.facts, "source": entry.source, "try": entry.example}
    told = [f"{name}: {fact}" for name, fact in facts.items() if fact]
    return "\n".join([*lines, *[""] * bool(told), *(line for fact in told for line in wrap_fact(fact, width))])


def wrap_fact(fact: str, width: int) -> list[str]:
    """Return the lines of a fact; a line to type is not broken within a word."""
    return wrap(
        fact, width, initial_indent=INDENT, subsequent_indent=INDENT * 2, break_on_hyphens=False, break_long_words=False
    )
