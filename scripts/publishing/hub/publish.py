"""Publish a model on the Hub or in a folder: build a package, scan it, send it in one commit."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils._validators import validate_repo_id

from qkv.scripts.common.files import staged
from qkv.scripts.publishing.hub.options import OF_THE_HUB, Published, PublishOptions
from qkv.scripts.publishing.hub.package import ModelSource, build
from qkv.scripts.publishing.hub.screen import scan
from qkv.scripts.publishing.hub.upload import send
from qkv.scripts.publishing.integrity.manifest import SIGNATURE, identity
from qkv.scripts.publishing.integrity.signature import sign, signer


def publish(source: ModelSource, target: str | os.PathLike[str], **options: Any) -> Published:
    """Put a model where `from_pretrained` finds it without qkv: on the Hub in one commit, or in a new folder.

    `source` is a model, its folder, a run folder, or a folder that was built before; `options` are the fields of
    `PublishOptions`. Everything is scanned before any of it leaves this machine, and the target holds the old or the
    new, never a mixture. UnfitError names a file that may not be published; PublishError says in a sentence why the Hub
    did not take it.
    """
    chosen, place = PublishOptions(**options), destination(target)
    if isinstance(place, Path):
        reason = f"{place} is a folder, and {{}} is for the Hub; leave it out, or name user/model"
        chosen.check_unset(OF_THE_HUB, reason)
    public = [] if isinstance(place, Path) else [place, *place.split("/")]
    signing = None if chosen.sign is None else signer(chosen.sign)
    with workspace(place) as folder:
        built = build(source, folder, place, chosen)
        chosen.step("scan the folder")
        files = scan(built, public=[*public, *chosen.allow])
        if built != folder:
            files = {name: gather(path, folder / name, link=isinstance(place, str)) for name, path in files.items()}
        if signing:
            chosen.step("sign the files")
            sign(signing, folder)
            files[SIGNATURE] = folder / SIGNATURE
        sizes = {name: path.stat().st_size for name, path in files.items()}
        result = Published(identity(built), sizes, as_built=built != folder)
        if isinstance(place, Path):
            return replace(result, folder=place)
        chosen.step("send to the Hub")
        made = send(files, place, chosen)
        return replace(result, url=made.pr_url or made.commit_url, commit=made.oid)


def gather(path: Path, target: Path, *, link: bool) -> Path:
    """Copy a file, or link it where it is read once; return its place."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if link:
        target.symlink_to(path.resolve())
    else:
        shutil.copyfile(path, target)
    return target


def destination(target: str | os.PathLike[str]) -> Path | str:
    """Return a folder if the target is a path, looks like one, or is there; otherwise the name of a repository."""
    name = os.fspath(target)
    if isinstance(target, os.PathLike) or name.startswith((".", "~", os.sep)) or Path(name).is_dir():
        return Path(name).expanduser()
    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise ValueError(f"{name!r} is no name for a repository: {error}") from error
    if "/" not in name:
        raise ValueError(f"{name!r} is neither a folder nor user/name; write ./{name} for a new folder")
    return name


@contextmanager
def workspace(place: Path | str) -> Iterator[Path]:
    """Yield an empty folder to build in: one that becomes the target, or a temporary one for the Hub."""
    if isinstance(place, Path):
        with staged(place) as folder:
            yield folder
    else:
        with tempfile.TemporaryDirectory(prefix="qkv-") as name:
            folder = Path(name) / place.rpartition("/")[2]  # a signature holds the name of the folder
            folder.mkdir()
            yield folder
