"""Write files that survive a crash, read and hash them, and tables that lie beside a module."""

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

# The loader in C, where PyYAML was built with it, takes a tenth of the time.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# The file that marks a run folder: the last that a training writes.
RECORD = "record.json"
# Errors of the operating system for a full disk, quota or file.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
RUST_ERROR = re.compile(r"\(os error (\d+)\)")


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
    with replacing_file(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Yield the path of a new file, which atomically replaces another when the block succeeds, and else is deleted."""
    partial = path.with_name(f"{path.name}.partial")
    with full_disk_named(path):
        try:
            yield partial
            sync(partial)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def write_json(path: Path, values: object) -> None:
    """Replace a file by JSON, whole or not at all."""
    write_atomically(path, json.dumps(values, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


@contextmanager
def full_disk_named(path: Path | None = None) -> Iterator[None]:
    """Raise OSError with the path, or that of the error, and its free space where the block finds the disk full."""
    try:
        yield
    except Exception as error:  # of any type, for libraries define theirs
        if (said := full_disk(error)) is None:
            raise
        path = path or Path(getattr(error, "filename", None) or ".").absolute()
        raise OSError(f"{path} could not be written: {said}; it takes more, {room(path)}") from error


def full_disk(error: Exception) -> str | None:
    """Return the operating system's message for an error of a full disk, else None."""
    number = error.errno if isinstance(error, OSError) else None
    # Libraries written in Rust, such as safetensors and tokenizers, put it in their message.
    if told := RUST_ERROR.search(str(error)):
        number = int(told[1])
    return os.strerror(number) if number in FULL else None


def room(path: Path) -> str:
    """Return a clause with the free bytes for a path, and how to go on."""
    there = next(folder for folder in (path, *path.absolute().parents) if folder.is_dir())
    free = shutil.disk_usage(there).free
    return f"and {free:,} bytes are free there: make room, and give the same command again"


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """Yield a folder that becomes the target when the block succeeds, and is deleted when it fails.

    FileExistsError when the target is not empty, or another process writes it; OSError that says so when the disk is
    full.
    """
    check_empty(target)
    # Beside the target, so that the last step is a rename within one file system.
    partial = target.with_name(f".{target.name}.partial")
    with full_disk_named(target):
        partial.mkdir(parents=True, exist_ok=True)
        with locked(partial, target):
            for left in partial.iterdir():  # by a process that was killed
                shutil.rmtree(left)
            try:
                folder = partial / target.name
                folder.mkdir()
                yield folder
                make_durable(folder)
                check_empty(target)
                if target.exists():
                    target.rmdir()
                folder.rename(target)
            finally:
                shutil.rmtree(partial)
    sync(target.parent)


@contextmanager
def locked(folder: Path, target: Path) -> Iterator[None]:
    """Lock a folder until the block or its process ends; FileExistsError where another process has it locked."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        lock(descriptor, "flock", f"another process writes {target}; wait for it, or name another folder")
        yield
    finally:
        os.close(descriptor)


def lock(descriptor: int, function: str, refusal: str) -> None:
    """Lock a file or folder by a function of fcntl until it is closed or the process ends, however it ends."""
    try:
        import fcntl

        getattr(fcntl, function)(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        raise FileExistsError(refusal) from None
    except (ImportError, OSError):  # a system or a file system without locks
        return


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Yield a new folder; when the block succeeds, each of its files atomically replaces the one in a run folder.

    The record goes first: until there is another, the folder is that of a training that is not finished.
    """
    partial = folder / ".model.partial"
    shutil.rmtree(partial, ignore_errors=True)
    with full_disk_named(folder):
        partial.mkdir()
        try:
            yield partial
            make_durable(partial)
            (folder / RECORD).unlink(missing_ok=True)
            for path in sorted(path for path in partial.rglob("*") if path.is_file()):
                place = folder / path.relative_to(partial)
                place.parent.mkdir(exist_ok=True)
                path.replace(place)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    sync(folder)


def check_empty(target: Path) -> None:
    """Raise FileExistsError unless a folder is new or empty."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{target} is not empty; remove it or name another folder")


def regular_bytes(path: str | Path) -> bytes:
    """Return the content of a file; ValueError for a device, a pipe, which may never end, or a folder."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise ValueError(f"{path.name!r} is no regular file; name one that holds the data itself")
    return path.read_bytes()


def similar_folder(missing: Path) -> str:
    """Suggest the newest folder beside a missing one whose name begins alike, because runs are named after data."""
    beside = [other for other in missing.parent.glob(f"{missing.name}*") if other.is_dir()]
    return f"; did you mean {max(beside, key=lambda folder: folder.stat().st_mtime)}?" if beside else ""


def cache_folder() -> Path:
    """Return our folder in the user's cache, and make it where it is missing."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qkv"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def table(module: str) -> Any:
    """Return the content of the YAML file beside a module, of the same name."""
    return yaml.load(Path(module).with_suffix(".yaml").read_text(encoding="utf-8"), LOADER)


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
