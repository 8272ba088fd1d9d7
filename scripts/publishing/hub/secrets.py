"""Find in a text what must not leave this machine: secrets, paths, and the names of its user and of itself."""

import getpass
import os
import re
import socket
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from huggingface_hub import get_token

from qkv.scripts.common.resources import table

TABLES = table(__file__)
SECRET = re.compile("|".join(f"({pattern})" for pattern in TABLES["secrets"].values()))
HOMES = r"/(?:home|Users|root)/[\w.-]+|\b[A-Za-z]:\\{1,2}Users\\{1,2}[\w.-]+"
SECRET_NAMES = re.compile(r"TOKEN(?!IZ)|KEY|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
LOGIN = "the Hugging Face login"
SHORTEST_VALUE, SHORTEST_NAME = 8, 3


@dataclass(frozen=True)
class Leak:
    """A finding, and its offset in the text."""

    start: int
    what: str


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

    def secrets(self, text: str) -> Iterator[Leak]:
        """Yield tokens, keys and passwords, by their form or because the environment holds them."""
        kinds = list(TABLES["secrets"])
        for match in SECRET.finditer(text):
            yield Leak(match.start(), kinds[int(match.lastindex or 1) - 1])
        for name, value in self.values.items():
            if (start := text.find(value)) >= 0:
                yield Leak(start, f"the value of {name}")

    def traces(self, text: str) -> Iterator[Leak]:
        """Yield absolute paths, and the names of this machine and its user."""
        for match in self._path.finditer(text):
            if match[0] not in self.public:
                yield Leak(match.start(), f"the path {match[0][:60]}")
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
        patterns = [unix, windows, r"file:///\S*"]
        if self.home:
            patterns.append(rf"(?<![\w.~/-]){re.escape(self.home)}(?![\w-])")
        return re.compile("|".join(patterns))


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
