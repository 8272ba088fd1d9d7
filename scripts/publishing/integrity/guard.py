"""Is a model what its manifest says when it is loaded? With QKV_VERIFY=1 every load of a qkv class is checked."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from huggingface_hub import snapshot_download
from transformers import PreTrainedModel

from qkv.modeling.conversion.files import CONFIG, GENERATION, INDEX, located
from qkv.scripts.publishing.integrity.files import file_rows
from qkv.scripts.publishing.integrity.inspector import held
from qkv.scripts.publishing.integrity.loading import OWN_LOAD
from qkv.scripts.publishing.integrity.manifest import (
    MANIFEST,
    IntegrityError,
    Manifest,
    brief,
    differences,
    read_manifest,
    unfilled,
)

READ = (MANIFEST, CONFIG, GENERATION, INDEX, "*.safetensors")
HUB_OPTIONS = ("cache_dir", "force_download", "local_files_only", "token")


def load_checked(load: Callable[..., Any], source: Any, *arguments: Any, **options: Any) -> Any:
    """What `load` gives of a folder or repository whose files, and tensors after loading, are those of its manifest.

    IntegrityError names the file, config field, tensor or buffer that is not, or says why that cannot be known.
    """
    if OWN_LOAD.get() or source is None:  # without a source the tensors are the caller's own
        return load(source, *arguments, **options)
    folder, options = pinned(source, options)
    try:
        manifest = read_manifest(folder)
    except IntegrityError as error:
        raise IntegrityError(f"QKV_VERIFY asks for a check that cannot be made: {error}") from None
    refuse(source, [line for row in file_rows(folder, manifest, reads=is_read) for line in row.findings])
    loaded = load(source, *arguments, **options)
    refuse(source, tensor_lines(loaded[0] if isinstance(loaded, tuple) else loaded, manifest))
    return loaded


def pinned(source: str | os.PathLike[str], options: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """The folder that will be loaded, and options that make sure of it: a branch may move between check and load."""
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
    """The folder in the cache with the files of a repository that patterns allow."""
    return Path(snapshot_download(name, revision=revision, **options))


def is_read(name: str) -> bool:
    """Whether loading an installed class reads a file."""
    return PurePosixPath(name).match("*.safetensors") or name in READ


def tensor_lines(model: PreTrainedModel, manifest: Manifest) -> list[str]:
    """Which tensors of a loaded model are others than the manifest says for its precision and class."""
    dtype = str(model.dtype).removeprefix("torch.")
    if dtype not in manifest["loaded"]:
        known = ", ".join(sorted(manifest["loaded"]))
        return [f"it is loaded in {dtype}, and the manifest knows the tensors in {known}"]
    found, expected = held(model), manifest["loaded"][dtype]
    lines = unfilled(found)
    same, prefix = type(model).__name__ == manifest["class"], f"{model.base_model_prefix}."
    for kind, entries in found.items():
        one, other = expected[kind], entries
        if not same:  # the model without its head, or with another
            one, other = ({name.removeprefix(prefix): each for name, each in table.items()} for table in (one, other))
            one = {name: each for name, each in one.items() if name in other}
        lines += differences(kind, one, other)
    return lines


def refuse(source: Any, lines: list[str]) -> None:
    """Raise where there is something to say against a load."""
    if lines:
        raise IntegrityError(f"{source} is not what its manifest says, and QKV_VERIFY refuses it: {brief(lines)}")
