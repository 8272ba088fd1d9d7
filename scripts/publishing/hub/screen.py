"""Scan a folder before it is published: only files that a model needs, and in them nothing of this machine.

Names of files and all texts are searched for secrets, by their form and by the values of this environment's secret
variables. Configs, code, card and templates may not hold absolute paths and the names of this user and machine either;
a vocabulary may, for a learned token may well be `/home` or a name. Of binary files the readable parts are searched.
"""

import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from safetensors import SafetensorError, safe_open

from qkv.scripts.common.resources import table
from qkv.scripts.publishing.hub.secrets import PASSWORDS, Patterns, leaks, secrets, traces

TABLES = table(__file__)
PUBLISHED: dict[str, str] = TABLES["published"]
# Kinds of files with texts of people and programs, where names and paths are traces.
OF_PEOPLE = ("weights", "configs", "texts")
RUN = re.compile(rb"[\x20-\x7e]{8,}")
LOCAL = re.compile(r'"\w*(?:name_or_path|_dir|_file|_path|_from_checkpoint)": *"([^"]+)"')
HUB_ID = re.compile(r"\w[\w.-]*(/[\w.-]+)?")
SHOWN = 5


class UnfitError(ValueError):
    """A folder holds what may not be published; one sentence names each file, the place in it, and what it is."""


def scan(folder: Path, *, public: Collection[str] = ()) -> dict[str, Path]:
    """Return {name: path} of a folder's files if all may be published; UnfitError names those that may not.

    `public` are names and paths, such as the owner of the repository, that everybody may read. Secrets never are.
    """
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    files = {name: path for name, path in paths.items() if path.is_symlink() or not path.is_dir()}
    card, hidden, shown = folder / "README.md", secrets(), traces(public)
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
    if kind == "configs":
        values = {value for value in LOCAL.findall(text) if not HUB_ID.fullmatch(value) or Path(value).is_dir()}
        yield from (f"holds the path {value[:60]}" for value in sorted(values - set(public)))


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
