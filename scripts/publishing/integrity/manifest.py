"""Describe a model's folder in a manifest, the hash of every file and of every tensor after loading, and compare them.

The manifest holds no time, path or user, so the same model gives the same text. Its identity is one hash over all that
decides what the model computes; documents such as the card are listed, but do not change it.
"""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

import qkv
from qkv.modeling.conversion.files import CONFIG, INDEX, is_too_long, named, read_json
from qkv.scripts.common.files import RECORD, file_hash, write_atomically, write_json
from qkv.scripts.common.inspector import UNFILLED, held
from qkv.scripts.publishing.hub.screen import PUBLISHED
from qkv.scripts.publishing.integrity.loading import installed_class, load_quietly

MANIFEST, FORMAT, SIGNATURE = "qkv_manifest.json", 1, "model.sig"
# Files that no loading reads.
DOCUMENTS = (".md", ".png", ".svg", ".jpg", ".yaml", ".yml", "LICENSE", "LICENSE.txt", "NOTICE", "NOTICE.txt")
# The identity covers these, and the files that loading reads.
CONTENT = ("class", "dtype", "loaded", "ties")
Manifest = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One check: its findings, a detail of the comparison, and whether it was skipped or the detail is a warning."""

    check: str
    findings: list[str] = field(default_factory=list)
    detail: str = ""
    skipped: bool = False
    warns: bool = False

    @property
    def result(self) -> str:
        """Return the result in a word."""
        if self.skipped:
            return "not run"
        return "FAILED" if self.findings else "warning" if self.warns else "passed"


class IntegrityError(RuntimeError):
    """A model's files or tensors are not what its manifest says, or cannot be compared with it."""


def write_manifest(
    folder: Path, model: PreTrainedModel | None = None, card: Callable[[str], str] | None = None
) -> None:
    """Write the manifest of a folder, whole or not at all, after loading the folder once.

    `card` makes the README from the identity. IntegrityError where loading lacks a tensor, or gives another than
    `model`, from which the folder was saved.
    """
    loader = installed_class(folder) if model is None else type(model)
    if loader is None:
        raise ValueError(f"neither qkv nor transformers has the class that {folder / CONFIG} names; give the model")
    manifest = {**describe_files(folder), **describe_load(loader, folder, model)}
    manifest["identity"] = identify(manifest)
    if card is not None:
        readme = folder / "README.md"
        write_atomically(readme, card(manifest["identity"]))
        manifest["files"][readme.name] = listed(readme)
    write_json(folder / MANIFEST, manifest)


def listed(path: Path) -> dict[str, Any]:
    """Return the manifest's entry of a file."""
    return {"sha256": file_hash(path), "bytes": path.stat().st_size}


def describe_files(folder: Path) -> Manifest:
    """Return the parts of a manifest that follow from the files."""
    return {
        "format": FORMAT,
        "versions": {library.__name__: str(library.__version__) for library in (qkv, torch, transformers)},
        "files": {path.relative_to(folder).as_posix(): listed(path) for path in file_paths(folder)},
    }


def describe_load(loader: Any, folder: Path, original: PreTrainedModel | None) -> Manifest:
    """Return the parts of a manifest that follow from a load in the precision of the files."""
    _, report = load_quietly(loader, folder)
    findings = load_findings(report)
    if original is not None:  # a forward pass may leave attributes behind
        expected = held(original)
        for kind in ("parameter", "buffer"):
            findings += differences(kind, expected[kind], report["loaded"][kind])
    if findings:
        raise IntegrityError(
            f"loading {folder.name} does not give the saved model: {brief(findings)}; mend the model's code and save "
            "it again"
        )
    return {part: report[part] for part in ("class", "dtype", "ties", "loaded")}


def file_paths(folder: Path) -> list[Path]:
    """Return every file of a folder and its sub-folders, but for the manifest, its signature and hidden files of tools.

    Of a run folder it is the files of the model, and not what the training keeps beside them.
    """
    # A link to a folder is listed, too, for loading reads the files behind it.
    paths = (path for path in folder.rglob("*") if path.is_file() or (path.is_symlink() and path.is_dir()))
    kinds = [pattern for kind, pattern in PUBLISHED.items() if kind != "pictures"]
    is_run = (folder / RECORD).is_file()
    return sorted(
        path
        for path, name in ((path, path.relative_to(folder)) for path in paths)
        if name.as_posix() not in (MANIFEST, SIGNATURE)
        and not is_hidden(name)
        and (not is_run or any(re.fullmatch(pattern, name.as_posix()) for pattern in kinds))
    )


def is_hidden(path: Path) -> bool:
    """Return whether a path belongs to git, the Hub's client or Python; evaluation results are part of the model."""
    return path.parts[0] != ".eval_results" and (path.parts[0].startswith(".") or "__pycache__" in path.parts)


def is_document(name: str) -> bool:
    """Return whether no loading reads a file."""
    return name.endswith(DOCUMENTS)


def identify(manifest: Manifest) -> str:
    """Return the identity of the model that a manifest describes, however its weights are divided into files."""
    values = {**{part: manifest[part] for part in CONTENT}, "files": files_read(manifest)}
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def files_read(manifest: Manifest) -> dict[str, str]:
    """Return {file: hash} of the files that loading reads, apart from the weights, whose tensors are listed."""
    names = [name for name in manifest["files"] if not is_document(name) and name != INDEX]
    read = [name for name in names if not re.fullmatch(PUBLISHED["weights"], name)]
    return {name: manifest["files"][name]["sha256"] for name in read}


def identity(folder: Path) -> str:
    """Return the identity in a folder's manifest."""
    return str(read_manifest(folder)["identity"])


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a folder; IntegrityError where there is none or it contradicts itself."""
    path = folder / MANIFEST
    if not path.is_file():
        raise IntegrityError(f"{folder} has no {MANIFEST} to compare it with; `qkv publish` writes one")
    try:
        manifest = read_json(path)
        if repr(found := manifest["format"]) != repr(FORMAT):  # as text, for True is 1
            raise IntegrityError(f"{path} has format={found!r}, this qkv reads {FORMAT}; install the qkv that wrote it")
        check_entries(manifest)
        computed, written = identify(manifest), manifest["identity"]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise IntegrityError(f"{MANIFEST} is damaged ({reason}); download it again") from error
    if written != computed:
        raise IntegrityError(f"{MANIFEST} was edited: its identity is {computed}, and it says {written}")
    return manifest


def edited_card(folder: Path) -> tuple[str, str]:
    """Return the card of a folder where it is not as it was written, else "", and the identity beside it."""
    manifest, card = read_manifest(folder) if (folder / MANIFEST).is_file() else {}, folder / "README.md"
    is_edited = manifest and card.is_file() and listed(card) != manifest["files"].get(card.name)
    return card.read_text(encoding="utf-8") if is_edited else "", manifest.get("identity", "")


def check_entries(manifest: Manifest) -> None:
    """Raise ValueError for entries of wrong types, which are compared with nothing else, and files outside."""
    for name, entry in manifest["files"].items():
        if PurePosixPath(name).root or ".." in PurePosixPath(name).parts or any(map(is_too_long, name.split("/"))):
            raise ValueError(f"{name[:40]} is no file of the folder")
        if {key: type(value) for key, value in entry.items()} != {"sha256": str, "bytes": int}:
            raise ValueError(f"{name} has no sha256 and bytes")
    kinds = ("parameter", "buffer", "attribute")
    tables = [manifest["ties"], manifest["versions"], *(manifest["loaded"][kind] for kind in kinds)]
    if not all(isinstance(each, str) for table in tables for each in table.values()):
        raise ValueError("an entry of ties, versions or loaded is no text")


def file_row(folder: Path, manifest: Manifest) -> Row:
    """Compare all files of a folder with the manifest; a config that loads a kernel or other weights is a finding."""
    files, findings = manifest["files"], []
    for name, entry in files.items():
        if not (folder / name).is_file():
            findings.append(f"{name} is missing")
        elif listed(folder / name) != entry:
            findings.append(f"{name} has other content")
    names = [path.relative_to(folder).as_posix() for path in file_paths(folder)]
    findings += [f"{name} is not in the manifest" for name in names if name not in files and not is_document(name)]
    try:
        named(folder)
    except ValueError as error:
        findings.append(str(error))
    return Row("files", findings, f"{len(files)} files, {sum(each['bytes'] for each in files.values()):,} bytes")


def check_files(folder: Path, sentence: str) -> None:
    """Raise IntegrityError with a sentence and the names of files that differ from the manifest."""
    if findings := file_row(folder, read_manifest(folder)).findings:
        raise IntegrityError(f"{sentence}: {brief(findings)}")


def load_findings(report: dict[str, Any]) -> list[str]:
    """Return the tensors that a load lacked, did not use, found in another shape, or left on the meta device."""
    lines = [f"{kind} tensor {name}" for kind, names in report["keys"].items() for name in names]
    held = ((f"{kind} {name}", each) for kind, table in report["loaded"].items() for name, each in table.items())
    return lines + [f"{name} is {UNFILLED}" for name, each in held if each.endswith(UNFILLED)]


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
        elif expected[name] != actual[name] and not actual[name].endswith(UNFILLED):  # told by `load_findings`
            one, other = (each.rpartition(" ")[0] for each in (expected[name], actual[name]))
            how = "has other content" if one == other else f"is {other}, the manifest has {one}"
            lines.append(f"{what} {name} {how}")
    return lines
