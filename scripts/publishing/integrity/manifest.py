"""Describe a model's folder in a manifest: a hash of every file, a fingerprint of every tensor, every config field.

The manifest holds no time, path or user, so the same model gives the same text. Its identity is one hash over all that
decides what the model computes; documents such as the card are listed, but do not change it.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import torch
import transformers
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedModel

import qkv
from qkv.modeling.conversion.files import CONFIG, INDEX, is_too_long, mapped, read_json, write_json
from qkv.scripts.common.files import RECORD, RepeatedKeyError, file_hash, unique_keys, write_atomically
from qkv.scripts.common.inspector import UNFILLED, Held, fingerprint, identical, tensors
from qkv.scripts.publishing.export.tested_releases import stated_releases
from qkv.scripts.publishing.hub.screen import TABLES
from qkv.scripts.publishing.integrity.loading import installed_class, load_unchecked

MANIFEST, FORMAT, SIGNATURE = "qkv_manifest.json", 1, "model.sig"
# An entry that the manifests of older code and of stock models lack.
RELEASES = "transformers"
# Files that no loading reads.
DOCUMENTS = (".md", ".png", ".svg", ".jpg", ".yaml", ".yml")
# What the identity covers, beside tensors and files.
CONTENT = ("class", "code", "config", "dtype", "fields", "loaded", "ties")
Manifest = dict[str, Any]


class IntegrityError(RuntimeError):
    """A model's files or tensors are not what its manifest says, or cannot be compared with it."""


def write_manifest(
    folder: Path, model: PreTrainedModel | None = None, card: Callable[[str], str] | None = None
) -> None:
    """Write the manifest of a folder, whole or not at all, after loading the folder once.

    `card` makes the README from the identity. IntegrityError where loading does not give what the files hold, or what
    `model`, from which they were saved, holds.
    """
    loader = installed_class(folder) if model is None else type(model)
    if loader is None:
        raise ValueError(f"neither qkv nor transformers has the class that {folder / CONFIG} names; give the model")
    manifest = describe(folder)
    manifest |= describe_load(loader, folder, model)
    manifest["identity"] = identify(manifest)
    if card is not None:
        readme = folder / "README.md"
        write_atomically(readme, card(manifest["identity"]))
        manifest["files"][readme.name] = listed(readme)
    write_json(folder / MANIFEST, manifest)


def listed(path: Path) -> dict[str, Any]:
    """Return the manifest's entry of a file."""
    return {"sha256": file_hash(path), "bytes": path.stat().st_size}


def describe(folder: Path) -> Manifest:
    """Return the parts of a manifest that follow from the files."""
    files = {path.relative_to(folder).as_posix(): listed(path) for path in file_paths(folder)}
    versions = {"qkv": qkv.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
    tested = stated_releases(folder)
    return {
        **({} if tested is None else {RELEASES: tested}),
        "format": FORMAT,
        "versions": {name: str(version) for name, version in versions.items()},
        "files": files,
        "code": code_digest(files),
        "config": digest(read_json(folder / CONFIG)),
        "fields": {path.name: read_json(path) for path in sorted(folder.glob("*config.json"))},
        "tensors": {name: file_tensors(folder / name) for name in files if name.endswith(".safetensors")},
    }


def describe_load(loader: Any, folder: Path, original: PreTrainedModel | None) -> Manifest:
    """Return the parts of a manifest that follow from a load in the precision of the files.

    IntegrityError where the load contradicts itself, or the model that was saved.
    """
    model, report = load_unchecked(loader, folder)
    check_none(f"loading {folder.name}", load_findings(report))
    if original is not None:  # a forward pass may leave attributes behind
        loaded = {name: tensor for kind, name, tensor in tensors(model) if kind != "attribute"}
        lines = [
            f"{kind} {name} has other content"
            for kind, name, tensor in tensors(original)
            if kind != "attribute" and (name not in loaded or not identical(tensor, loaded[name]))
        ]
        check_none(f"loading {folder.name} gives another model", lines)
    kept = {"class": report["class"], "dtype": report["dtype"], "ties": report["ties"]}
    return {**kept, "loaded": {report["dtype"]: report["loaded"]}}


def file_paths(folder: Path) -> list[Path]:
    """Return every file of a folder and its sub-folders, but for the manifest, its signature and hidden files of tools.

    Of a run folder it is the files of the model, and not what the training keeps beside them.
    """
    # A link to a folder is listed, too, for loading reads the files behind it.
    paths = (path for path in folder.rglob("*") if path.is_file() or (path.is_symlink() and path.is_dir()))
    named = {path.relative_to(folder): path for path in paths}
    kinds = [pattern for kind, pattern in TABLES["published"].items() if kind != "pictures"]
    is_run = (folder / RECORD).is_file()
    return sorted(
        path
        for name, path in named.items()
        if name.as_posix() not in (MANIFEST, SIGNATURE)
        and not is_hidden(name)
        and (not is_run or any(re.fullmatch(pattern, name.as_posix()) for pattern in kinds))
    )


def is_hidden(path: Path) -> bool:
    """Return whether a path belongs to git, the Hub's client or Python; evaluation results are part of the model."""
    return path.parts[0] != ".eval_results" and (path.parts[0].startswith(".") or "__pycache__" in path.parts)


def is_document(name: str) -> bool:
    """Return whether no loading reads a file."""
    return name.endswith(DOCUMENTS) or name == "LICENSE"


def file_tensors(path: Path) -> dict[str, str]:
    """Return {name: fingerprint} of a safetensors file, one tensor in memory at a time."""
    try:
        with safe_open(path, framework="pt") as file:
            names = sorted(file.keys())
    except SafetensorError as error:
        raise IntegrityError(f"{path.name} is cut short or damaged ({error}); download it again") from None
    return {name: fingerprint(mapped(path, name)) for name in names}


def digest(values: dict[str, Any]) -> str:
    """Return the SHA-256 of JSON values, whatever their order and layout."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def code_digest(files: dict[str, Any]) -> str:
    """Return one hash of all code files."""
    return digest({name: each.get("sha256") for name, each in files.items() if name.endswith(".py")})


def identify(manifest: Manifest) -> str:
    """Return the identity of what a manifest describes, however its weights are divided into files."""
    parts = {part: manifest[part] for part in CONTENT}
    return digest({**parts, "tensors": by_name(manifest), "files": by_file(manifest)})


def by_name(manifest: Manifest) -> dict[str, str]:
    """Return {tensor: fingerprint}, whichever file it is in."""
    return {name: each for file in manifest["tensors"].values() for name, each in file.items()}


def by_file(manifest: Manifest) -> dict[str, str]:
    """Return {file: hash} of the files that loading reads and whose content the manifest does not list."""
    known = {*manifest["tensors"], *manifest["fields"], INDEX}
    files = {name: each["sha256"] for name, each in manifest["files"].items() if name not in known}
    return {name: f"text {each}" for name, each in files.items() if not is_document(name)}


def identity(folder: Path) -> str:
    """Return the identity in a folder's manifest."""
    return str(read_manifest(folder)["identity"])


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a folder; IntegrityError where there is none or it contradicts itself."""
    path = folder / MANIFEST
    if not path.is_file():
        raise IntegrityError(f"{folder} has no {MANIFEST} to compare it with; `qkv publish` writes one")
    try:
        manifest = read_json(path, unique_keys)
    except (ValueError, RepeatedKeyError) as error:
        raise IntegrityError(f"{MANIFEST} is damaged ({error}); download it again") from None
    if repr(manifest.get("format")) != repr(FORMAT):  # as text, for True is 1
        raise IntegrityError(
            f"{MANIFEST} has format={manifest.get('format')!r}, this qkv reads {FORMAT}; install the qkv that wrote it"
        )
    try:
        wrong, computed = [*inconsistent(manifest)], identify(manifest)
    except (LookupError, TypeError, AttributeError) as error:
        wrong, computed = [f"{type(error).__name__} {error}"], ""
    if wrong:
        raise IntegrityError(f"{MANIFEST} is damaged ({brief(wrong)}); download it again")
    if manifest["identity"] != computed:
        raise IntegrityError(f"{MANIFEST} was edited: its identity is {computed}, and it says {manifest['identity']}")
    return manifest


def inconsistent(manifest: Manifest) -> Iterator[str]:
    """Yield entries that nothing else is compared with: their types, and files outside the folder."""
    for name, each in manifest["files"].items():
        if PurePosixPath(name).root or ".." in PurePosixPath(name).parts or any(map(is_too_long, name.split("/"))):
            yield f"{name[:40]} is no file of the folder"
        if {key: type(value) for key, value in each.items()} != {"sha256": str, "bytes": int}:
            yield f"{name} has no sha256 and bytes"
    for part, ending in (("tensors", ".safetensors"), ("fields", "config.json")):
        names = [name for name in manifest[part] if name not in manifest["files"] or not name.endswith(ending)]
        yield from (f"{name} is no file with {part}" for name in names)
    loaded = manifest["loaded"][manifest["dtype"]]
    if len(by_name(manifest)) != sum(map(len, manifest["tensors"].values())):
        yield "two files have a tensor of one name"
    tables = [by_name(manifest), manifest["ties"], manifest["versions"], *loaded.values()]
    if not all(isinstance(each, str) for table in tables for each in table.values()):
        yield "an entry of tensors, ties, versions or loaded is no text"


def load_findings(report: dict[str, Any]) -> list[str]:
    """Return the tensors that a load lacked, did not use, found in another shape, or left on the meta device."""
    lines = [f"{kind} tensor {name}" for kind, names in report["keys"].items() for name in names]
    return lines + unfilled(report["loaded"])


def unfilled(loaded: Held) -> list[str]:
    """Return the tensors that a load has left on the meta device."""
    names = [f"{kind} {name}" for kind, table in loaded.items() for name in table if table[name].endswith(UNFILLED)]
    return [f"{name} is {UNFILLED}" for name in names]


def check_none(what: str, findings: list[str]) -> None:
    """Raise IntegrityError where there are findings."""
    if findings:
        raise IntegrityError(f"{what}: {brief(findings)}; mend the model's code and save it again")


def brief(lines: list[str], limit: int = 4) -> str:
    """Join the first of many findings, and say how many more there are."""
    more = [f"and {len(lines) - limit} more"] if len(lines) > limit else []
    return ", ".join([*lines[:limit], *more])


def differences(what: str, expected: dict[str, Any], actual: dict[str, Any]) -> list[str]:
    """Return the entries in which two tables of fingerprints differ, each by its name."""
    lines = []
    for name in sorted(expected.keys() | actual.keys()):
        if name not in actual:
            lines.append(f"{what} {name} is missing")
        elif name not in expected:
            lines.append(f"{what} {name} is not in the manifest")
        elif expected[name] != actual[name] and not actual[name].endswith(UNFILLED):  # told by `unfilled`
            one, other = (each.rpartition(" ")[0] for each in (expected[name], actual[name]))
            how = "has other content" if one == other else f"is {other}, the manifest has {one}"
            lines.append(f"{what} {name} {how}")
    return lines
