"""Check every load of a qkv class against the manifest of its source: QKV_VERIFY=1."""

from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from huggingface_hub import snapshot_download

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
    inner = options.get("subfolder", "")
    chosen = {name: options[name] for name in HUB_OPTIONS if name in options}
    fetch = partial(fetched, allow_patterns=[str(PurePosixPath(inner, name)) for name in READ], **chosen)
    folder = located(source, options.get("revision"), fetch=fetch)
    if folder != Path(source):  # a branch may move between check and load
        options["revision"] = folder.name
    folder = folder / inner
    try:
        manifest = read_manifest(folder)
    except IntegrityError as error:
        raise IntegrityError(f"QKV_VERIFY asks for a check that cannot be made: {error}") from None
    check_none(source, [line for row in file_rows(folder, manifest, reads=is_read) for line in row.findings])
    loaded = load(source, *arguments, **options)
    check_none(source, tensor_findings(loaded[0] if isinstance(loaded, tuple) else loaded, manifest))
    return loaded


def fetched(name: str, revision: str | None, **options: Any) -> Path:
    """Return the folder in the cache with the files of a repository that patterns allow."""
    return Path(snapshot_download(name, revision=revision, **options))


def is_read(name: str) -> bool:
    """Return whether loading an installed class reads a file."""
    return PurePosixPath(name).match("*.safetensors") or name in READ


def tensor_findings(model: Any, manifest: Manifest) -> list[str]:
    """Return the tensors of a loaded model that differ from the manifest.

    In another precision, and in a model without its head, only the names are compared.
    """
    loaded, prefix = held(model), f"{model.base_model_prefix}."
    expected, lines = manifest["loaded"][manifest["dtype"]], unfilled(loaded)
    is_whole = type(model).__name__ == manifest["class"]
    if is_whole and str(model.dtype) == f"torch.{manifest['dtype']}":
        return [*lines, *(line for kind in loaded for line in differences(kind, expected[kind], loaded[kind]))]
    names = {name for table in expected.values() for name in table}
    return [
        *lines,
        *(
            f"{kind} {name} is not in the manifest"
            for kind, table in loaded.items()
            for name in table
            if not {name, f"{prefix}{name}"} & names
        ),
    ]


def check_none(source: Any, findings: list[str]) -> None:
    """Raise IntegrityError where there are findings."""
    if findings:
        raise IntegrityError(f"{source} is not what its manifest says, and QKV_VERIFY refuses it: {brief(findings)}")
