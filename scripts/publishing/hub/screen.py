"""Scan a folder before it is published: only files that a model needs, and in them nothing of this machine.

Names of files and all texts are searched for secrets, by their form and by the values of this environment's secret
variables. Configs, code, card and templates may not hold absolute paths and the names of this user and machine either;
a vocabulary may, for a learned token may well be `/home` or a name. Of binary files the readable parts are searched.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from qkv.scripts.common.files import RepeatedKeyError, unique_keys
from qkv.scripts.common.resources import table
from qkv.scripts.publishing.hub.secrets import TABLES as SECRETS
from qkv.scripts.publishing.hub.secrets import Leak, Machine, passwords, this_machine

TABLES = table(__file__)
PATH_FIELD = re.compile(r"(name_or_path|_dir|_file|_path|_from_checkpoint)$")
HUB_ID = re.compile(r"\w[\w.-]*(/[\w.-]+)?")
HOME, RUN = re.compile(SECRETS["home"]), re.compile(rb"[\x20-\x7e]{8,}")
SHOWN = 5
# Places in a file and the text at each: none for a whole text, in which the line is the place.
Texts = Iterator[tuple[str, str]]


class UnfitError(ValueError):
    """A folder holds what may not be published; one sentence names each file, the place in it, and what it is."""


def scan(folder: Path, *, public: Collection[str] = ()) -> dict[str, Path]:
    """Return {name: path} of a folder's files if all may be published; UnfitError names those that may not.

    `public` are names and paths, such as the owner of the repository, that everybody may read. Secrets never are.
    """
    card, machine = folder / "README.md", this_machine(public)
    shown = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    files = {name: path for name, path in paths.items() if path.is_symlink() or not path.is_dir()}
    findings = [found for name, path in files.items() for found in problems(name, path, shown, machine)]
    findings += [
        f"{name} is a link that leads out of the folder"
        for name, path in files.items()
        if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve())
    ]
    if findings:
        more = f"; and {len(findings) - SHOWN} more" if len(findings) > SHOWN else ""
        raise UnfitError(
            f"{folder} may not be published: {'; '.join(findings[:SHOWN])}{more}; remove that, and name with "
            "--allow a name or path that everybody may read"
        )
    return files


def problems(name: str, path: Path, shown: str, machine: Machine) -> Iterator[str]:
    """Yield a clause for each reason against publishing a file; a secret itself is not repeated."""
    if leak := next(leaks(name, "", machine), None):
        yield f"a file {name[:3]}… holds {leak.what} (its name)"
        return
    kind = next((kind for kind, names in TABLES["published"].items() if re.fullmatch(names, name)), None)
    if kind is None or not path.is_file():
        yield f"{name} is of no kind that a published model needs"
        return
    if kind == "pictures" and name not in shown:
        yield f"{name} is a picture that README.md does not show"
    try:
        texts = [*READERS[kind](path)]
    except (ValueError, RecursionError, SafetensorError, RepeatedKeyError) as error:
        yield f"{name} is not what its name says ({error})"
        return
    for place, text in texts:
        found = leaks(text, place, machine) if kind in ("weights", "configs", "texts") else machine.secrets(text)
        homes = (Leak(home.start(), f"the path {home[0]}") for home in HOME.finditer(text) if kind in TABLES["heads"])
        for leak in (*found, *homes):
            line = f"line {text.count(chr(10), 0, leak.start) + 1}"
            # A secret among the keys is not repeated.
            yield f"{name} holds {leak.what} ({'below a key' if any(machine.secrets(place)) else place or line})"


def leaks(text: str, place: str, machine: Machine) -> Iterator[Leak]:
    """Yield the leaks of a text; the value of a config that is a path as a whole is one."""
    key = re.sub(r"\[\d+\]$", "", place).rpartition(".")[2]
    found = [*machine.secrets(text), *passwords(f'{key} = "{text}"'), *passwords(text), *machine.traces(text)]
    yield from found
    absolute = re.fullmatch(r"(/[^/\s]+){2,}/?", text) and not place.startswith(("id2label", "label2id"))
    local = PATH_FIELD.search(place) and not (HUB_ID.fullmatch(text) and not Path(text).is_dir())
    if text and not found and (absolute or local) and text not in machine.public:
        yield Leak(0, f"the path {text[:60]}")


def read_text(path: Path) -> Texts:
    """Yield the whole of a text."""
    yield "", path.read_bytes().decode("utf-8")


def read_binary(path: Path, kind: str) -> Texts:
    """Yield the readable parts of a picture or of sentence pieces; ValueError for another format."""
    data = path.read_bytes()
    if not data.startswith(tuple(head.encode("latin-1") for head in TABLES["heads"][kind])):
        raise ValueError("its first bytes are those of another format")
    yield "", "\n".join(run.decode("ascii") for run in RUN.findall(data))


def read_config(path: Path) -> Texts:
    """Yield the strings of a JSON file; ValueError and its kin where it is none."""
    yield from strings(json.loads(path.read_bytes(), object_pairs_hook=unique_keys))


def read_weights(path: Path) -> Texts:
    """Yield the names of tensors and the metadata; SafetensorError where the file is not whole."""
    with safe_open(path, framework="numpy") as opened:
        yield from (("name of a tensor", name) for name in opened.keys())
        yield from strings(opened.metadata() or {}, "metadata")


def strings(value: Any, place: str = "") -> Texts:
    """Yield every string in a JSON value, the keys included."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield f"{place}, a key".lstrip(", "), key
            yield from strings(part, f"{place}.{key}".lstrip("."))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from strings(part, f"{place}[{index}]")


READERS: dict[str, Callable[[Path], Texts]] = {
    "weights": read_weights,
    "configs": read_config,
    "vocabularies": read_text,
    "sentence pieces": lambda path: read_binary(path, "sentence pieces"),
    "signatures": read_text,
    "pictures": lambda path: read_binary(path, "pictures"),
    "texts": read_text,
}
