"""Find in a text what must not leave this machine: secrets, paths, and the names of its user and of itself.

Forms of secrets are those of detect-secrets and of the table beside this file.
"""

import getpass
import os
import re
import socket
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from huggingface_hub import get_token

from qkv.scripts.common.resources import table
from qkv.scripts.publishing.hub.forms import forms

TABLES = table(__file__)
PASSWORD = re.compile(TABLES["password"])
TRACES = {kind: re.compile(pattern) for kind, pattern in TABLES["traces"].items()}
HOMES = r"/(?:home|Users|root)/[\w.-]+|\b[A-Za-z]:\\{1,2}Users\\{1,2}[\w.-]+"
SECRET_NAMES = re.compile(r"TOKEN(?!IZ)|(?:^|_|API|ACCESS)KEYS?(?:_|$)|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
LOGIN = "the Hugging Face login"
SHORTEST_VALUE, SHORTEST_NAME = 8, 3


@dataclass(frozen=True)
class Leak:
    """A finding, and its offset in the text."""

    start: int
    what: str


# Before a secret in a text, and nowhere in the bytes of a picture, where any letter may stand before it.
BOUNDARY = "(?<![A-Za-z0-9])"


@cache
def patterns(*, in_bytes: bool = False) -> list[tuple[str, re.Pattern[str]]]:
    """Return what secrets look like, ours before those of detect-secrets, which are less exact about what they are."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    from detect_secrets.plugins.base import RegexBasedDetector

    boundary = "" if in_bytes else BOUNDARY
    own = [(what, re.compile(f"{boundary}(?:{pattern})")) for what, pattern in TABLES["secrets"].items()]
    detectors: dict[str, Any] = get_mapping_from_secret_type_to_class()
    for what, detector in detectors.items():
        if issubclass(detector, RegexBasedDetector) and what not in TABLES["left out"]:
            own += [(f"a secret ({what})", pattern) for pattern in detector().denylist]
    return own


def secrets_in(text: str, *, in_bytes: bool = False) -> Iterator[Leak]:
    """Yield what looks like a secret in any form of a text, each once."""
    covered: list[tuple[int, int]] = []
    for form in forms(text):
        for what, pattern in patterns(in_bytes=in_bytes):
            for match in pattern.finditer(form.text):
                start, end = sorted((form.origin(match.start()), form.origin(match.end())))
                if not any(start < last and first <= end for first, last in covered):
                    covered.append((start, max(end, start + 1)))
                    yield Leak(start, what)


def passwords(text: str) -> Iterator[Leak]:
    """Yield what is assigned to a name that says it is secret."""
    for match in PASSWORD.finditer(text):
        yield Leak(match.start(), "a password or key, by its name")


@dataclass(frozen=True)
class Machine:
    """The traces of a machine: values of secret variables, home folder, names by their kind, top-level folders.

    `public` are names and paths that everybody may read.
    """

    values: Mapping[str, str]
    home: str
    names: Mapping[str, str]
    folders: Collection[str] = ()
    public: Collection[str] = ()

    def secrets(self, text: str, *, in_bytes: bool = False) -> Iterator[Leak]:
        """Yield tokens, keys and passwords, by their form or because the environment holds them."""
        yield from secrets_in(text, in_bytes=in_bytes)
        for name, value in self.values.items():
            if (start := text.find(value)) >= 0:
                yield Leak(start, f"the value of {name}")

    def traces(self, text: str) -> Iterator[Leak]:
        """Yield paths, addresses, and the names of this machine, its network and its user."""
        for kind, pattern in [("path", self._path), *TRACES.items()]:
            for match in pattern.finditer(text):
                if match[0] not in self.public:
                    yield Leak(match.start(), f"the {kind} {match[0][:60]}")
        for kind, name in self.names.items():
            for match in re.finditer(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", text):
                yield Leak(match.start(), f"the {kind} {name}")

    @cached_property
    def _path(self) -> re.Pattern[str]:
        """Compile a pattern of absolute paths, not of URLs or divisions."""
        own = "|".join(
            map(re.escape, sorted({*TABLES["folders of people"], *self.folders} - {*TABLES["folders of systems"]}))
        )
        rest = r"[^\s\"'`<>|,;)]*"
        unix = rf"(?<![\w.~/$}}\])-])/(?:{own})/[\w.@+-]{rest}"
        windows = rf"(?<![A-Za-z0-9])[A-Z]:(?:\\{{1,2}}|/)[\w .-]{{2,}}[\\/]{rest}"
        kinds = [unix, windows, r"file:///\S*"]
        if self.home:
            kinds.append(rf"(?<![\w.~/-]){re.escape(self.home)}(?![\w-])")
        return re.compile("|".join(kinds))


def this_machine(public: Collection[str] = ()) -> Machine:
    """Describe the machine this runs on."""
    variables = {name: value for name, value in os.environ.items() if SECRET_NAMES.search(name)}
    variables[LOGIN] = get_token() or ""
    values = {name: value for name, value in variables.items() if len(value) >= SHORTEST_VALUE}
    host = socket.gethostname()
    names = {"user name": user_name(), "host name": host, "short host name": host.partition(".")[0]}
    telling = {
        kind: name
        for kind, name in names.items()
        if len(name) >= SHORTEST_NAME and name.lower() not in TABLES["common names"] and name not in public
    }
    root, home = Path("/"), os.path.expanduser("~")
    folders = {path.name for path in root.iterdir()} if root.is_dir() else set()
    # A user without a home has none, or the root, which stands in every division.
    return Machine(values, home if len(Path(home).parts) > 1 else "", telling, folders, public)


def user_name() -> str:
    """Return the user's name, empty where there is none, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
