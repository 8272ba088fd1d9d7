"""Write files that survive a crash, read and hash them."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# What a run folder is known by: the last thing that a training writes.
RECORD = "record.json"


class RepeatedKeyError(Exception):
    """An object of JSON has a key twice, of which readers may take either."""


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON from its keys and values; RepeatedKeyError for a key that stands twice."""
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise RepeatedKeyError(f"it has the key {key!r} twice")
        values[key] = value
    return values


def make_durable(folder: Path) -> None:
    """Force every file of a folder to the disk."""
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


def sync(path: Path) -> None:
    """Force a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a file by new content, whole or not at all, whenever the process is killed."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(content.encode() if isinstance(content, str) else content)
    sync(partial)
    partial.replace(path)


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """Yield a folder that becomes the target when the block succeeds, and is deleted when it fails.

    FileExistsError when the target is not empty.
    """
    check_empty(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target, so that the last step is a rename within one file system.
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as temporary:
        folder = Path(temporary) / target.name
        folder.mkdir()
        yield folder
        make_durable(folder)
        if target.exists():
            target.rmdir()
        folder.rename(target)
    sync(target.parent)


def check_empty(target: Path) -> None:
    """Raise FileExistsError unless a folder is new or empty."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{target} is not empty; remove it or name another folder")


def regular_bytes(path: str | Path) -> bytes:
    """Return the content of a file; ValueError for a device, a pipe or a folder, of which some never end."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise ValueError(f"{path.name!r} is no regular file; name one that holds the data itself")
    return path.read_bytes()


def named_bytes(source: str | Path | bytes, mend: str) -> tuple[str, bytes]:
    """Return a name for messages and the content of a file, or of its bytes; ValueError for an empty one."""
    name, data = ("these bytes", source) if isinstance(source, bytes) else (str(source), regular_bytes(source))
    if not data:
        raise ValueError(f"{name} is empty; {mend}")
    return name, data


def model_folder(run: str | Path) -> Path:
    """Return the folder with the model of a run: its own, or `model` in it where an earlier qkv trained it."""
    folder = Path(run).expanduser()
    inner = folder / "model"
    return inner if (inner / "config.json").is_file() and not (folder / "config.json").is_file() else folder


def similar_folder(missing: Path) -> str:
    """Suggest the newest folder beside a missing one whose name begins with its own, as runs are called after data."""
    beside = [other for other in missing.parent.glob(f"{missing.name}*") if other.is_dir()]
    return f"; did you mean {max(beside, key=lambda folder: folder.stat().st_mtime)}?" if beside else ""


def cache_folder() -> Path:
    """Return the folder of the user's cache that is ours, made where it is not there."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qkv"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
