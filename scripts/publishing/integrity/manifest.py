"""What exactly is in a published folder? Every file, tensor and config field of it, and what loading makes of them.

The manifest holds no time, path or user, so that the same model gives the same text. Its identity is one hash over all
that decides what the model computes; documents such as the card are listed, but may change without changing it.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import torch
import transformers
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedModel

import qkv
from qkv.modeling.conversion.files import CONFIG, INDEX, mapped, read_json, write_json
from qkv.scripts.common.files import file_hash
from qkv.scripts.publishing.integrity.inspector import UNFILLED, Held, fingerprint, held
from qkv.scripts.publishing.integrity.loading import installed_class, load

MANIFEST, FORMAT = "qkv_manifest.json", 1
# In these the manifest knows every tensor, whatever the files hold.
PRECISIONS = (torch.float32, torch.bfloat16, torch.float16)
# Files that no loading reads.
DOCUMENTS = (".md", ".png", ".svg", ".jpg", ".yaml", ".yml")
PARTS: dict[str, tuple[str, ...]] = {
    "str": ("class", "code", "config", "dtype", "identity"),
    "dict": ("fields", "files", "loaded", "tensors", "ties", "versions"),
}
TABLES, FILE = ("files", "fields", "tensors", "loaded"), {"sha256", "bytes"}
# What the identity is about, beside tensors and files.
CONTENT = ("class", "code", "config", "dtype", "fields", "loaded", "ties")
Manifest = dict[str, Any]


class IntegrityError(RuntimeError):
    """A model's files or tensors are not what its manifest says, or cannot be compared with it."""


def write_manifest(folder: Path, model: PreTrainedModel | None = None) -> None:
    """Write the manifest of a folder, whole or not at all; its tensors after loading are those of a fresh load.

    IntegrityError where loading does not give what the files hold, or what `model`, from which they were saved, holds.
    """
    loader = installed_class(folder) if model is None else type(model)
    if loader is None:
        raise ValueError(f"neither qkv nor transformers has the class that {folder / CONFIG} names; give the model")
    manifest = {**described(folder), **after_loading(loader, folder, model)}
    manifest["identity"] = identified(manifest)
    write_json(folder / MANIFEST, manifest)


def list_document(folder: Path, name: str) -> None:
    """Take a document into the manifest that was written after it: no document changes the identity."""
    manifest = read_json(folder / MANIFEST)
    manifest["files"][name] = listed(folder / name)
    write_json(folder / MANIFEST, manifest)


def listed(path: Path) -> dict[str, Any]:
    """What the manifest says of a file."""
    return {"sha256": file_hash(path), "bytes": path.stat().st_size}


def described(folder: Path) -> Manifest:
    """What a folder holds, as far as its files tell."""
    files = {str(path.relative_to(folder).as_posix()): listed(path) for path in file_paths(folder)}
    versions = {"qkv": qkv.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
    return {
        "format": FORMAT,
        "versions": {name: str(version) for name, version in versions.items()},
        "files": files,
        "code": code_digest(files),
        "config": digest(read_json(folder / CONFIG)),
        "fields": {path.name: read_json(path) for path in config_files(folder)},
        "tensors": {name: file_tensors(folder / name) for name in files if name.endswith(".safetensors")},
    }


def file_paths(folder: Path) -> list[Path]:
    """Every file of a folder and its sub-folders, but for the manifest and what tools hide in dot files."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).as_posix() != MANIFEST)
    return sorted(path for path in found if not is_hidden(path.relative_to(folder)))


def is_hidden(path: Path) -> bool:
    """Whether git, the Hub's client or Python keeps notes there; what the card's results are read from is no note."""
    return path.parts[0] != ".eval_results" and (path.parts[0].startswith(".") or "__pycache__" in path.parts)


def is_document(name: str) -> bool:
    """Whether no loading reads a file."""
    return name.endswith(DOCUMENTS) or name == "LICENSE"


def config_files(folder: Path) -> list[Path]:
    """The JSON files with settings, of which the manifest holds every field."""
    return sorted(folder.glob("*config.json"))


def file_tensors(path: Path) -> dict[str, str]:
    """{name: fingerprint} of a safetensors file, one tensor in memory at a time; IntegrityError where it is damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            names = sorted(file.keys())
    except SafetensorError as error:
        raise IntegrityError(f"{path.name} is cut short or damaged ({error}); download it again") from None
    return {name: fingerprint(mapped(path, name)) for name in names}


def digest(values: dict[str, Any]) -> str:
    """The SHA-256 of JSON values, whatever their order and layout."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def code_digest(files: dict[str, Any]) -> str:
    """One hash of all code files."""
    return digest({name: each.get("sha256") for name, each in files.items() if name.endswith(".py")})


def identified(manifest: Manifest) -> str:
    """The identity of what a manifest describes, however its weights are divided into files."""
    parts = {part: manifest[part] for part in CONTENT}
    return digest({**parts, "tensors": by_name(manifest), "files": by_file(manifest)})


def by_name(manifest: Manifest) -> dict[str, str]:
    """{tensor: fingerprint}, in whichever file it is."""
    return {name: each for file in manifest["tensors"].values() for name, each in file.items()}


def by_file(manifest: Manifest) -> dict[str, str]:
    """{file: hash} of those that loading reads and that are not known by what is in them."""
    known = {*manifest["tensors"], *manifest["fields"], INDEX}
    files = {name: each["sha256"] for name, each in manifest["files"].items() if name not in known}
    return {name: f"text {each}" for name, each in files.items() if not is_document(name)}


def identity(folder: Path) -> str:
    """The identity that a folder's manifest claims: one hash over files, code, config and tensors."""
    return str(read_manifest(folder)["identity"])


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder; IntegrityError where there is none or it contradicts itself."""
    path = folder / MANIFEST
    if not path.is_file():
        raise IntegrityError(f"{folder} has no {MANIFEST} to compare it with; `qkv publish` writes one")
    try:
        manifest = read_json(path)
    except ValueError as error:
        raise IntegrityError(str(error)) from None
    if manifest.get("format") != FORMAT:
        raise IntegrityError(
            f"{MANIFEST} has format {manifest.get('format')!r}, this qkv reads {FORMAT}; install the qkv that wrote it"
        )
    if wrong := malformed(manifest):
        raise IntegrityError(f"{MANIFEST} is damaged: {brief(wrong)}; download it again")
    if manifest["identity"] != (found := identified(manifest)):
        raise IntegrityError(f"{MANIFEST} was edited: its identity is {found}, and it says {manifest['identity']}")
    return manifest


def malformed(manifest: Manifest) -> list[str]:
    """What a manifest of the right format cannot have."""
    wrong = [
        f"{name} is no {kind}"
        for kind, names in PARTS.items()
        for name in names
        if type(manifest.get(name)).__name__ != kind
    ]
    wrong += [
        f"{name} of {part} is no dict"
        for part in TABLES
        if f"{part} is no dict" not in wrong
        for name, each in manifest[part].items()
        if not isinstance(each, dict)
    ]
    # The others take these for granted.
    return wrong or [*stray(manifest), *inconsistent(manifest)]


def stray(manifest: Manifest) -> Iterator[str]:
    """Files that have no place where the manifest has them."""
    for name, each in manifest["files"].items():
        if not is_inside(name):
            yield f"{name} leads out of the folder"
        if set(each) != FILE:
            yield f"{name} has no sha256 and bytes"
    for part, ending in (("tensors", ".safetensors"), ("fields", "config.json")):
        for name in manifest[part]:
            if name not in manifest["files"] or not name.endswith(ending):
                yield f"{name} is no file with {part}"


def inconsistent(manifest: Manifest) -> Iterator[str]:
    """What the manifest says twice, and not the same."""
    if len(by_name(manifest)) != sum(map(len, manifest["tensors"].values())):
        yield "two files have a tensor of one name"
    if manifest["code"] != code_digest(manifest["files"]) or manifest["config"] != digest(
        manifest["fields"].get(CONFIG, {})
    ):
        yield "code and config are not those of its files"


def is_inside(name: str) -> bool:
    """Whether a file's name stays within its folder."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


def after_loading(loader: Any, folder: Path, original: PreTrainedModel | None) -> Manifest:
    """What a fresh load holds, in the precision of the files and in the usual ones.

    IntegrityError where the loads contradict the model that was saved, each other, or themselves.
    """
    model, report = load(loader, folder)
    found = {report["dtype"]: report["loaded"]}
    rounded = casts(model, report)
    del model
    refuse(f"loading {folder.name}", unfit(report))
    if original is not None:
        refuse(f"loading {folder.name} gives another model", from_memory(original, report["loaded"]))
    for dtype in (str(dtype).removeprefix("torch.") for dtype in PRECISIONS):
        if dtype not in found:
            found[dtype] = load(loader, folder, dtype=dtype)[1]["loaded"]
            others = [name for name, each in found[dtype]["parameter"].items() if each not in rounded[name]]
            refuse(f"loading {folder.name} in {dtype}", [f"parameter {name} is not rounded" for name in others])
    return {"class": report["class"], "dtype": report["dtype"], "loaded": found, "ties": report["ties"]}


def casts(model: PreTrainedModel, report: dict[str, Any]) -> dict[str, set[str]]:
    """{parameter: its fingerprints in every usual precision}: some may stay as they are where others are rounded."""
    own, names = report["loaded"]["parameter"], report["ties"]
    found = {
        name: {own[name], *(fingerprint(parameter, dtype) for dtype in PRECISIONS if dtype != parameter.dtype)}
        for name, parameter in model.named_parameters()
    }
    return {name: found[names.get(name, name)] for name in own}


def from_memory(original: PreTrainedModel, loaded: Held) -> list[str]:
    """In what a model in memory and a load of its files differ; what a forward pass remembers is not compared."""
    found = held(original)
    return [line for kind in ("parameter", "buffer") for line in differences(kind, found[kind], loaded[kind])]


def unfit(report: dict[str, Any]) -> list[str]:
    """What a load was given too much, too little or in another shape, and what it left unfilled."""
    lines = [f"{kind} tensor {name}" for kind, names in report["keys"].items() for name in names]
    return lines + unfilled(report["loaded"])


def unfilled(loaded: Held) -> list[str]:
    """What a load has left on the meta device, or moved to the disk."""
    return [
        f"{kind} {name} is {UNFILLED}"
        for kind, entries in loaded.items()
        for name, each in entries.items()
        if each.endswith(UNFILLED)
    ]


def refuse(what: str, lines: list[str]) -> None:
    """Raise where there is something to say against it."""
    if lines:
        raise IntegrityError(f"{what}: {brief(lines)}; mend the model's code and save it again")


def brief(lines: list[str], limit: int = 4) -> str:
    """The first of many findings, and how many more there are."""
    more = [f"and {len(lines) - limit} more"] if len(lines) > limit else []
    return ", ".join([*lines[:limit], *more])


def differences(what: str, expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """In what two tables differ, each entry by its name."""
    return [f"{what} {name} {how}" for name, how in compared(expected, found)]


def compared(expected: dict[str, Any], found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(name, how it differs) of two tables of fingerprints."""
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            yield name, "is missing"
        elif name not in expected:
            yield name, "is not in the manifest"
        elif expected[name] != found[name] and not found[name].endswith(UNFILLED):  # told by `unfilled`
            one, other = (each.rpartition(" ")[0] for each in (expected[name], found[name]))
            yield name, "has other content" if one == other else f"is {other}, the manifest has {one}"
