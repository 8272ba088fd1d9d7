"""Scan a folder before it is published: only files that a model needs, and in them nothing of this machine.

In every file: secrets, by their form and by the values of this environment's secret variables. In config, code, card
and templates also absolute paths and the names of this user and machine; not in vocabularies, where a learned token
may well be `/home` or a name. In pictures and other binary files secrets and home folders, in their readable parts;
what pictures say about themselves is read as text is.
"""

import itertools
import json
import os
import re
import zipfile
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from qkv.scripts.common.files import RepeatedKeyError, unique_keys
from qkv.scripts.common.resources import table
from qkv.scripts.publishing.hub.binary import metadata, readable
from qkv.scripts.publishing.hub.secrets import HOMES, Leak, Machine, passwords, this_machine
from qkv.scripts.publishing.integrity.bundle import statement

TABLES = table(__file__)
OPTIMIZER = re.compile(r"(^|\.)(exp_avg(_sq)?|max_exp_avg_sq|momentum_buffer|rng_state)$|^optimizer\.")
PATH_FIELD = re.compile(r"(name_or_path|_dir|_file|_path|_from_checkpoint)$")
HUB_ID = re.compile(r"|\w[\w.-]*(/[\w.-]+)?")
SHOWN = 5
# No secret reaches over this from one text to another.
SEPARATOR = "\0" * 8


class UnfitError(ValueError):
    """A folder holds what may not be published; one sentence names each file, the place in it, and what it is."""


@dataclass(frozen=True)
class Finding:
    """A reason against publishing a file, and its place."""

    name: str
    what: str
    place: str = ""

    def __str__(self) -> str:
        """Return a clause of a sentence."""
        return f"{self.name} {self.what}" if not self.place else f"{self.name} holds {self.what} ({self.place})"


@dataclass(frozen=True)
class File:
    """A file to scan, the text of the card beside it, and the machine whose traces it must not have."""

    name: str
    path: Path
    card: str
    machine: Machine


def scan(folder: Path, *, public: Collection[str] = ()) -> dict[str, Path]:
    """Return {name: path} of a folder's files if all may be published; UnfitError names those that may not.

    `public` are names and paths, such as the owner of the repository, that everybody may read. Secrets never are.
    """
    card = folder / "README.md"
    shown = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    machine = this_machine(public)
    files = {name: File(name, path, shown, machine) for name, path in entries(folder, shown)}
    findings = [finding for file in files.values() for finding in scan_file(file, folder)]
    if findings:
        more = f"; and {len(findings) - SHOWN} more" if len(findings) > SHOWN else ""
        raise UnfitError(
            f"{folder} may not be published: {'; '.join(map(str, findings[:SHOWN]))}{more}; remove that, and name with "
            "--allow a name or path that everybody may read"
        )
    return {name: file.path for name, file in files.items()}


def entries(folder: Path, shown: str) -> Iterator[tuple[str, Path]]:
    """Yield (name, path) of everything in a folder; of sub-folders that no model needs only the folder."""
    for place, folders, names in os.walk(folder):
        inside = Path(place)
        for name in sorted(folders):
            path = inside / name
            relative = path.relative_to(folder).as_posix()
            if path.is_symlink() or not (relative in TABLES["folders"] or f"{relative}/" in shown):
                folders.remove(name)
                yield relative, path
        for name in sorted(names):
            yield (inside / name).relative_to(folder).as_posix(), inside / name


def scan_file(file: File, folder: Path) -> Iterator[Finding]:
    """Yield what is wrong with one file."""
    examine = next((EXAMINE[kind] for kind, name in TABLES["published"].items() if re.fullmatch(name, file.name)), None)
    if told := next(leaks(file.name, "", file.machine), None):
        # A secret in a name is not repeated.
        yield Finding(f"a file {file.name[:3]}…", told.what, "its name")
        return
    if file.path.is_symlink() and not file.path.resolve().is_relative_to(folder.resolve()):
        yield Finding(file.name, "is a link that leads out of the folder")
    elif examine is None or not file.path.is_file():
        yield Finding(file.name, f"is {leftover(file.name)}")
    elif kind := disguise(file.path):
        yield Finding(file.name, f"is {kind}")
    else:
        yield from examine(file)


def leftover(name: str) -> str:
    """Return what a file or folder is that no published model needs."""
    last = name.rpartition("/")[2]
    known = (what for pattern, what in TABLES["leftovers"].items() if re.fullmatch(pattern, last))
    return next(known, "of no kind that a published model needs")


def disguise(path: Path) -> str:
    """Return the format of a file by its first bytes, if none of that format is published."""
    with path.open("rb") as file:
        first = file.read(16)
    return next((what for head, what in TABLES["disguises"].items() if begins(first, head)), "")


def begins(data: bytes, *heads: str) -> bool:
    """Return whether some bytes begin with any of the heads of the table."""
    return data.startswith(tuple(head.encode("latin-1") for head in heads))


def examine_weights(file: File) -> Iterator[Finding]:
    """Check that a safetensors file is whole, and holds parameters only."""
    try:
        with safe_open(file.path, framework="numpy") as opened:
            tensors, metadata = list(opened.keys()), opened.metadata() or {}
    except SafetensorError as error:
        yield Finding(file.name, f"is no whole safetensors file ({error})")
        return
    for place, text in [*(("name of a tensor", tensor) for tensor in tensors), *strings(metadata, "metadata")]:
        yield from (Finding(file.name, leak.what, place) for leak in leaks(text, place, file.machine))
    for tensor in tensors:
        if OPTIMIZER.search(tensor):
            yield Finding(file.name, "the state of an optimizer", tensor)


def examine_picture(file: File) -> Iterator[Finding]:
    """Check that the card shows a picture."""
    if file.name not in file.card:
        yield Finding(file.name, "is a picture that README.md does not show")
    yield from examine_text(file) if file.name.endswith(".svg") else examine_binary(file, "pictures")


def examine_binary(file: File, kind: str) -> Iterator[Finding]:
    """Check the format, that no archive is appended, and that no readable part holds a secret."""
    data = file.path.read_bytes()
    if not data.startswith(tuple(head.encode("latin-1") for head in TABLES["heads"][kind])) or zipfile.is_zipfile(
        file.path
    ):
        yield Finding(file.name, "is not what its name says")
    for start, text in readable(data):
        homes = (Leak(match.start(), f"the path {match[0]}") for match in re.finditer(HOMES, text))
        for leak in (*file.machine.secrets(text, in_bytes=True), *homes):
            yield Finding(file.name, leak.what, f"byte {start + leak.start}")
    for start, text in metadata(data):
        for leak in (*passwords(text), *file.machine.traces(text)):
            yield Finding(file.name, leak.what, f"byte {start}")


def examine_text(file: File) -> Iterator[Finding]:
    """Check code, card, license and templates."""
    return in_lines(file, lambda text: (*file.machine.secrets(text), *passwords(text), *file.machine.traces(text)))


def examine_vocabulary(file: File) -> Iterator[Finding]:
    """Check a vocabulary, which may hold anything but a secret."""
    return in_lines(file, file.machine.secrets)


def examine_config(file: File) -> Iterator[Finding]:
    """Check every string of a JSON file; of a tokenizer's vocabulary only for secrets."""
    try:
        values = json.loads(file.path.read_bytes(), object_pairs_hook=unique_keys)
    except (ValueError, RecursionError, RepeatedKeyError) as error:
        yield Finding(file.name, f"is no JSON ({error})")
        return
    learned: dict[bool, list[tuple[str, str]]] = {True: [], False: []}
    for place, text in strings(values):
        learned[place.startswith(tuple(TABLES["learned"]))].append((place, text))
    detected = [(place, leak) for place, text in learned[False] for leak in leaks(text, place, file.machine)]
    for place, leak in (*detected, *secrets_of(learned[True], file.machine)):
        # A secret among the keys is not repeated.
        yield Finding(file.name, leak.what, "below a key" if any(file.machine.secrets(place)) else place)


def examine_signature(file: File) -> Iterator[Finding]:
    """Check the names in what was signed; who signed it, a key or certificate and its entry in a log, is public."""
    try:
        signed = statement(file.path)
    except ValueError as error:
        yield Finding(file.name, f"is not what its name says ({error})")
        return
    for place, text in strings(signed):
        yield from (Finding(file.name, leak.what, place) for leak in leaks(text, place, file.machine))


def secrets_of(parts: list[tuple[str, str]], machine: Machine) -> Iterator[tuple[str, Leak]]:
    """Yield (place, leak) of the secrets in many short texts, which are read as one."""
    starts = [0, *itertools.accumulate(len(text) + len(SEPARATOR) for _, text in parts)]
    for leak in machine.secrets(SEPARATOR.join(text for _, text in parts)):
        yield parts[bisect_right(starts, leak.start) - 1][0], leak


def in_lines(file: File, find: Callable[[str], Iterable[Leak]]) -> Iterator[Finding]:
    """Yield the findings in a text, by line."""
    try:
        text = file.path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        yield Finding(file.name, f"is no text ({error})")
        return
    for leak in find(text):
        yield Finding(file.name, leak.what, f"line {text.count(chr(10), 0, leak.start) + 1}")


def leaks(text: str, place: str, machine: Machine) -> Iterator[Leak]:
    """Yield the leaks of one value; a value that is a path as a whole is one."""
    key = re.sub(r"\[\d+\]$", "", place).rpartition(".")[2]
    detected = [*machine.secrets(text), *passwords(f'{key} = "{text}"'), *passwords(text), *machine.traces(text)]
    yield from detected
    absolute = re.fullmatch(r"(/[^/\s]+){2,}/?", text) and not place.startswith(("id2label", "label2id"))
    local = PATH_FIELD.search(place) and not (HUB_ID.fullmatch(text) and not Path(text).is_dir())
    if not detected and (absolute or local) and text not in machine.public:
        yield Leak(0, f"the path {text[:60]}")


def strings(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield (place, text) of every string in a JSON value, the keys included."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield f"{place}, a key".lstrip(", "), key
            yield from strings(part, f"{place}.{key}".lstrip("."))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from strings(part, f"{place}[{index}]")


EXAMINE: dict[str, Callable[[File], Iterator[Finding]]] = {
    "weights": examine_weights,
    "configs": examine_config,
    "vocabularies": examine_vocabulary,
    "sentence pieces": partial(examine_binary, kind="sentence pieces"),
    "signatures": examine_signature,
    "pictures": examine_picture,
    "texts": examine_text,
}
