"""Find secrets in a text, by detect-secrets and a table of other forms, and the traces of a machine and its user."""

import getpass
import os
import re
import socket
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from huggingface_hub import get_token

from qkv.scripts.common.resources import table

TABLES = table(__file__)
PASSWORD, VARIABLES = re.compile(TABLES["password"]), re.compile(TABLES["variables"])
TRACES = {kind: re.compile(pattern) for kind, pattern in TABLES["traces"].items()}
WORD = r"(?<![A-Za-z0-9]){}(?![A-Za-z0-9])"
LOGIN = "the Hugging Face login"
SHORTEST_VALUE, SHORTEST_NAME = 8, 3


@dataclass(frozen=True)
class Leak:
    """A finding, and its offset in the text."""

    start: int
    what: str


@cache
def patterns() -> list[tuple[str, re.Pattern[str]]]:
    """Return the forms of secrets, ours before those of detect-secrets, whose names are less exact."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    from detect_secrets.plugins.base import RegexBasedDetector

    forms = [(what, re.compile(f"(?<![A-Za-z0-9])(?:{pattern})")) for what, pattern in TABLES["secrets"].items()]
    detectors: dict[str, Any] = get_mapping_from_secret_type_to_class()
    for what, detector in detectors.items():
        if issubclass(detector, RegexBasedDetector) and what not in TABLES["left out"]:
            forms += [(f"a secret ({what})", pattern) for pattern in detector().denylist]
    return forms


def passwords(text: str) -> Iterator[Leak]:
    """Yield the values of names that say they are secret."""
    return (Leak(match.start(), "a password or key, by its name") for match in PASSWORD.finditer(text))


@dataclass(frozen=True)
class Machine:
    """The values of secret variables by the variable's name, and the names of user and machine by their kind.

    `public` are names and paths that everybody may read.
    """

    values: Mapping[str, str]
    names: Mapping[str, str]
    public: Collection[str] = ()

    def secrets(self, text: str) -> Iterator[Leak]:
        """Yield tokens, keys and passwords, by their form or because the environment holds them."""
        found: dict[int, str] = {}
        for what, pattern in patterns():
            for match in pattern.finditer(text):
                found.setdefault(match.start(), what)
        yield from (Leak(start, what) for start, what in found.items())
        for name, value in self.values.items():
            if (start := text.find(value)) >= 0:
                yield Leak(start, f"the value of {name}")

    def traces(self, text: str) -> Iterator[Leak]:
        """Yield paths, addresses, and the names of this machine and its user."""
        names = {kind: re.compile(WORD.format(re.escape(name))) for kind, name in self.names.items()}
        for kind, pattern in {**TRACES, **names}.items():
            for match in pattern.finditer(text):
                if match[0] not in self.public:
                    yield Leak(match.start(), f"the {kind} {match[0][:60]}")


def this_machine(public: Collection[str] = ()) -> Machine:
    """Describe the machine this runs on."""
    variables = {name: value for name, value in os.environ.items() if VARIABLES.search(name)}
    variables[LOGIN] = get_token() or ""
    values = {name: value for name, value in variables.items() if len(value) >= SHORTEST_VALUE}
    host = socket.gethostname()
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # as in some containers
        user = ""
    names = {"user name": user, "host name": host, "short host name": host.partition(".")[0]}
    known = {*TABLES["common names"], *public}
    telling = {kind: name for kind, name in names.items() if len(name) >= SHORTEST_NAME and name.lower() not in known}
    return Machine(values, telling, public)
