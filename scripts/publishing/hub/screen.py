"""Scan a folder before it is published: only files that a model needs, without secrets or traces of this machine.

Names of files and all texts are searched for secrets, by their form and by the values of this environment's secret
variables. Configs, code, card and templates may not hold absolute paths and the names of this user and machine either;
a vocabulary may, for a learned token may well be `/home` or a name. Of binary files the readable parts are searched.
"""

import getpass
import json
import os
import re
import socket
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from huggingface_hub import get_token
from safetensors import SafetensorError, safe_open

from qkv.scripts.common.files import table

TABLES = table(__file__)
PUBLISHED: dict[str, str] = TABLES["published"]
# Kinds of files with texts of people and programs, where names and paths are traces.
OF_PEOPLE = ("weights", "configs", "texts")
RUN = re.compile(rb"[\x20-\x7e]{8,}")
VARIABLES = re.compile(TABLES["variables"])
WORD = r"(?<![A-Za-z0-9]){}(?![A-Za-z0-9])"
SHORTEST_VALUE, SHORTEST_NAME, SHOWN = 8, 3, 5
# (the kind of secret or trace, its form)
Patterns = list[tuple[str, re.Pattern[str]]]
PASSWORDS: Patterns = [("a password or key, by its name", re.compile(TABLES["password"]))]


class UnfitError(ValueError):
    """A folder holds secrets or traces of this machine; one sentence names each with its file and line."""


def scan(folder: Path, *, public: Collection[str] = ()) -> dict[str, Path]:
    """Return {name: path} of a folder's files; UnfitError names the files that may not be published.

    `public` are names and paths, such as the owner of the repository, that everybody may read. Secrets never are.
    """
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    files = {name: path for name, path in paths.items() if path.is_symlink() or not path.is_dir()}
    card, hidden, shown = folder / "README.md", secrets(), traces()
    pictures = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    findings: list[str] = []
    for name, path in files.items():
        if any(leaks(name, hidden, [])):
            findings.append(f"a file {name[:3]}… holds a secret in its name")
        elif path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
            findings.append(f"{name} is a link that leads out of the folder")
        else:
            findings += [f"{name} {found}" for found in problems(name, path, pictures, (hidden, shown), public)]
    if findings:
        more = f"; and {len(findings) - SHOWN} more" if len(findings) > SHOWN else ""
        raise UnfitError(
            f"{folder} may not be published: {'; '.join(findings[:SHOWN])}{more}; remove that, and name with "
            "--allow a name or path that everybody may read"
        )
    return files


def problems(
    name: str, path: Path, card: str, patterns: tuple[Patterns, Patterns], public: Collection[str]
) -> Iterator[str]:
    """Yield a clause for each reason against publishing a file."""
    kind = next((kind for kind, names in PUBLISHED.items() if re.fullmatch(names, name)), None)
    if kind is None or not path.is_file():
        yield "is of no kind that a published model needs"
        return
    if kind == "pictures" and name not in card:
        yield "is a picture that README.md does not show"
    try:
        text = text_of(path, kind)
    except (ValueError, RecursionError, SafetensorError) as error:
        yield f"is not what its name says ({error})"
        return
    hidden, shown = patterns
    found = leaks(text, [*hidden, *PASSWORDS], shown, public) if kind in OF_PEOPLE else leaks(text, hidden, [])
    yield from (f"holds {each}" for each in found)


def text_of(path: Path, kind: str) -> str:
    """Return the text of a file that is searched; ValueError or SafetensorError for another format."""
    if kind == "weights":
        with safe_open(path, framework="numpy") as opened:
            return "\n".join([*opened.keys(), *(f"{key}: {value}" for key, value in (opened.metadata() or {}).items())])
    data = path.read_bytes()
    if heads := TABLES["heads"].get(kind):
        if not data.startswith(tuple(head.encode("latin-1") for head in heads)):
            raise ValueError("its first bytes are those of another format")
        return "\n".join(run.decode("ascii") for run in RUN.findall(data))
    text = data.decode("utf-8")
    if path.suffix != ".json":
        return text
    json.loads(text)
    return text.replace('\\"', '"')  # quotes in strings


@cache
def forms() -> Patterns:
    """Return the forms of secrets: ours, and then the forms of detect-secrets, whose names are less exact."""
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


def traces() -> Patterns:
    """Return the forms of paths, addresses and hosts, and the names of this machine and its user."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # as in some containers
        user = ""
    names, known = {"user name": user, "host name": socket.gethostname().partition(".")[0]}, TABLES["common names"]
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
