"""Check every load of a qkv class against the manifest of its source: QKV_VERIFY=1."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from huggingface_hub import snapshot_download
from transformers import PreTrainedModel

from qkv.modeling.conversion.files import CONFIG, GENERATION, INDEX, located
from qkv.scripts.common.inspector import held
from qkv.scripts.publishing.integrity.files import file_rows
from qkv.scripts.publishing.integrity.loading import UNCHECKED
from qkv.scripts.publishing.integrity.manifest import (
    MANIFEST,
    IntegrityError,
    Manifest,
    brief,
    differences,
    expected_load,
    read_manifest,
    unfilled,
)

READ = (MANIFEST, CONFIG, GENERATION, INDEX, "*.safetensors")
HUB_OPTIONS = ("cache_dir", "force_download", "local_files_only", "token")


def load_checked(load: Callable[..., Any], source: Any, *arguments: Any, **options: Any) -> Any:
    """Call `load` for a folder or repository, and check its files before and its tensors after against the manifest.

    IntegrityError names the file, config field, tensor or buffer that differs, or says why that cannot be known.
    """
    if UNCHECKED.get() or source is None:  # without a source the tensors are the caller's own
        return load(source, *arguments, **options)
    folder, options = pinned(source, options)
    try:
        manifest = read_manifest(folder)
    except IntegrityError as error:
        raise IntegrityError(f"QKV_VERIFY asks for a check that cannot be made: {error}") from None
    check_none(source, [line for row in file_rows(folder, manifest, reads=is_read) for line in row.findings])
    loaded = load(source, *arguments, **options)
    check_none(source, tensor_findings(loaded[0] if isinstance(loaded, tuple) else loaded, manifest, folder))
    return loaded


def pinned(source: str | os.PathLike[str], options: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """Return the folder that will be loaded, and options with its commit: a branch may move between check and load."""
    inner = options.get("subfolder", "")
    fetch = partial(
        fetched,
        allow_patterns=[str(PurePosixPath(inner, name)) for name in READ],
        **{name: options[name] for name in HUB_OPTIONS if name in options},
    )
    folder = located(source, options.get("revision"), fetch=fetch)
    if folder != Path(source):
        options = {**options, "revision": folder.name}
    return folder / inner, options


def fetched(name: str, revision: str | None, **options: Any) -> Path:
    """Return the folder in the cache with the files of a repository that patterns allow."""
    return Path(snapshot_download(name, revision=revision, **options))


def is_read(name: str) -> bool:
    """Return whether loading an installed class reads a file."""
    return PurePosixPath(name).match("*.safetensors") or name in READ


def tensor_findings(model: PreTrainedModel, manifest: Manifest, folder: Path) -> list[str]:
    """Return the tensors of a loaded model that differ from the manifest in its precision and class."""
    loaded = held(model)
    same, prefix = type(model).__name__ == manifest["class"], f"{model.base_model_prefix}."
    named = {
        kind: entries | {f"{prefix}{name}": each for name, each in entries.items()} for kind, entries in loaded.items()
    }
    expected, lines = expected_load(manifest, folder, str(model.dtype).removeprefix("torch."), named), unfilled(loaded)
    for kind, entries in loaded.items():
        one, other = expected[kind], entries
        if not same:  # the model without its head, or with another
            one, other = ({name.removeprefix(prefix): each for name, each in table.items()} for table in (one, other))
            one = {name: each for name, each in one.items() if name in other}
        lines += differences(kind, one, other)
    return lines


def check_none(source: Any, findings: list[str]) -> None:
    """Raise IntegrityError where there are findings."""
    if findings:
        raise IntegrityError(f"{source} is not what its manifest says, and QKV_VERIFY refuses it: {brief(findings)}")
