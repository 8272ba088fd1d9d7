"""Compare a folder or repository with its manifest before a model is loaded from it: QKV_VERIFY=1."""

import os
from functools import partial
from pathlib import Path
from typing import Any

from qkv.modeling.conversion.files import located
from qkv.scripts.publishing.integrity.files import file_row
from qkv.scripts.publishing.integrity.loading import UNCHECKED
from qkv.scripts.publishing.integrity.manifest import IntegrityError, brief, read_manifest
from qkv.scripts.publishing.integrity.verification import fetch

HUB_OPTIONS = ("cache_dir", "force_download", "local_files_only", "token")


def checked(source: str | os.PathLike[str], options: dict[str, Any]) -> dict[str, Any]:
    """Return the options to load a source with; a repository is loaded at the commit that was compared.

    IntegrityError names a file that differs from the manifest, or says that there is none.
    """
    if UNCHECKED.get():
        return options
    chosen = {name: options[name] for name in HUB_OPTIONS if name in options}
    root = located(source, options.get("revision"), fetch=partial(fetch, **chosen))
    folder = root / (options.get("subfolder") or "")
    if findings := file_row(folder, read_manifest(folder)).findings:
        raise IntegrityError(f"{source} is not what its manifest says, and QKV_VERIFY refuses it: {brief(findings)}")
    return options if root == Path(source) else {**options, "revision": root.name}
