"""Know the forms of secrets, by detect-secrets and a table of others, and the traces of this machine and its user."""

import getpass
import os
import re
import socket
from collections.abc import Collection, Iterator
from functools import cache
from typing import Any

from huggingface_hub import get_token

from qkv.scripts.common.resources import table

TABLES = table(__file__)
VARIABLES = re.compile(TABLES["variables"])
WORD = r"(?<![A-Za-z0-9]){}(?![A-Za-z0-9])"
SHORTEST_VALUE, SHORTEST_NAME = 8, 3
# What each pattern finds.
Patterns = list[tuple[str, re.Pattern[str]]]
PASSWORDS: Patterns = [("a password or key, by its name", re.compile(TABLES["password"]))]


@cache
def forms() -> Patterns:
    """Return the forms of secrets, ours before those of detect-secrets, whose names are less exact."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    from detect_secrets.plugins.base import RegexBasedDetector

    found = [(what, re.compile(f"(?<![A-Za-z0-9])(?:{pattern})")) for what, pattern in TABLES["secrets"].items()]
    detectors: dict[str, Any] = get_mapping_from_secret_type_to_class()
    for what, detector in detectors.items():
        if issubclass(detector, RegexBasedDetector) and what not in TABLES["left out"]:
            found += [(f"a secret ({what})", pattern) for pattern in detector().denylist]
    return found


def secrets() -> Patterns:
    """Return the forms of secrets, and the values of this environment's secret variables."""
    variables = {name: value for name, value in os.environ.items() if VARIABLES.search(name)}
    variables["the Hugging Face login"] = get_token() or ""
    values = {name: value for name, value in variables.items() if len(value) >= SHORTEST_VALUE}
    return [*forms(), *((f"the value of {name}", re.compile(re.escape(value))) for name, value in values.items())]


def traces(public: Collection[str] = ()) -> Patterns:
    """Return the forms of paths, addresses and hosts, and the names of this machine and its user."""
    host = socket.gethostname()
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # as in some containers
        user = ""
    names = {"user name": user, "host name": host, "short host name": host.partition(".")[0]}
    known = {*TABLES["common names"], *public}
    telling = {kind: name for kind, name in names.items() if len(name) >= SHORTEST_NAME and name.lower() not in known}
    found = [(kind, re.compile(pattern)) for kind, pattern in TABLES["traces"].items()]
    return found + [(kind, re.compile(WORD.format(re.escape(name)))) for kind, name in telling.items()]


def leaks(text: str, hidden: Patterns, shown: Patterns, public: Collection[str] = ()) -> Iterator[str]:
    """Yield the secrets and the traces in a text with their lines; only a trace is repeated."""
    found: dict[int, str] = {}
    for what, pattern in hidden:
        for match in pattern.finditer(text):
            found.setdefault(match.start(), what)
    for kind, pattern in shown:
        for match in pattern.finditer(text):
            trace = match["trace"] if "trace" in pattern.groupindex else match[0]
            if trace not in public:
                found.setdefault(match.start(), f"the {kind} {trace[:60]}")
    yield from (f"{what} (line {text.count(chr(10), 0, start) + 1})" for start, what in sorted(found.items()))
