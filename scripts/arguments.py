"""The commands of `qkv` and their arguments, known without importing PyTorch: a table, `arguments.yaml`."""

import re
from argparse import ArgumentParser, HelpFormatter
from collections import defaultdict
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any, NoReturn

from qkv.scripts.common.files import table
from qkv.scripts.common.words import nearest, positive
from qkv.scripts.prediction.options import OPTIONS

Commands = dict[str, dict[str, Any]]
COMMANDS: Commands = table(__file__)
TYPES = {"int": int, "float": float, "positive": positive, "path": Path}
# Commands that take a recipe and its fields.
OF_RECIPES = ("train", "quickstart", "compare", "sweep")
OF_DATA = ("train", "quickstart", "sweep")
# Commands that take a model, an input and options.
OF_MODELS = ("predict", "evaluate", "generate", "attend")
WITHOUT_MODELS = ("recipes",)


class Formatter(HelpFormatter):
    """Wrap each paragraph of a description by itself, and break no path at a hyphen."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
        return "\n\n".join(fill(paragraph, width, break_on_hyphens=False) for paragraph in paragraphs)


class Parser(ArgumentParser):
    """A parser that raises ValueError, so that every mistake is reported the same way."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage; suggest the nearest option for an unknown one."""
        unknown = re.match(r"unrecognized arguments: (--[\w-]+)", message)
        close = nearest(unknown[1], self.options) if unknown else None
        raise ValueError(f"{message}; {f'did you mean {close!r}?' if close else f'see {self.prog} --help'}")

    @property
    def options(self) -> list[str]:
        """The names of all options."""
        return list(self._option_string_actions)


@dataclass(frozen=True)
class Program:
    """A program: its name in the shell, the package of its commands, and the table of these."""

    name: str
    package: str
    commands: Commands

    def module(self, name: str) -> str:
        """Return the module that runs a command."""
        return f"{self.package}.{self.commands[name].get('module', name.replace('-', '_'))}"


QKV = Program("qkv", "qkv.scripts", COMMANDS)


def about(name: str, program: Program = QKV) -> tuple[str, str]:
    """Return the description of a command, and its example."""
    return program.commands[name]["about"].strip(), program.commands[name]["example"]


def parser_of(name: str, program: Program = QKV) -> Parser:
    """Return the parser of a command."""
    description, example = about(name, program)
    parser = Parser(
        f"{program.name} {name}", description=description, epilog=f"example: {example}", formatter_class=Formatter
    )
    listed = "; ".join(f"{key}= {meaning}" for key, meaning in OPTIONS.get(name, {}).items())
    instead: dict[str, Any] = defaultdict(parser.add_mutually_exclusive_group)
    for word, given in program.commands[name].get("arguments", {}).items():
        options = deepcopy(given) | {"help": given["help"].replace("{options}", listed)}
        group = instead[options.pop("instead")] if "instead" in options else parser
        group.add_argument(word, **options | ({"type": TYPES[options["type"]]} if "type" in options else {}))
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser
