"""Check the caches: where they are, how large, and whether they can be written."""

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path

from huggingface_hub import constants

from qkv.scripts.common.tables import scaled
from qkv.scripts.diagnosis.findings import Finding

# Seconds after which a folder is large enough to be counted no further, and bytes of a disk that are little.
PATIENCE, LITTLE = 2.0, 5e9
INCOMPLETE = ".incomplete"


@dataclass
class Cache:
    """A folder that libraries fill: bytes of its files, of those whose download was cut off, and free on its disk."""

    name: str
    folder: Path
    variable: str
    size: int
    incomplete: int
    counted: bool
    free: int
    writable: bool

    def row(self) -> str:
        """Return what is printed of it."""
        size = f"{'' if self.counted else 'over '}{scaled(self.size, 'B')}" if self.folder.is_dir() else "not yet there"
        return f"{self.folder}: {size}" + ("" if self.writable else ", not writable")


def look_at_caches() -> list[Cache]:
    """Look at the caches of the Hub, of datasets, of torch.compile and of qkv."""
    home = Path(constants.HF_HOME)
    compiled = Path(tempfile.gettempdir()) / f"torchinductor_{getuser()}"
    own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qkv"
    return [
        cache("models of the Hub", Path(constants.HF_HUB_CACHE), "HF_HOME"),
        cache("data sets", Path(os.environ.get("HF_DATASETS_CACHE") or home / "datasets"), "HF_HOME"),
        cache(
            "torch.compile",
            Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR") or compiled),
            "TORCHINDUCTOR_CACHE_DIR",
        ),
        cache("qkv", own, "XDG_CACHE_HOME"),
    ]


def cache(name: str, folder: Path, variable: str) -> Cache:
    """Look at a folder, which may not be there yet."""
    there = next((own for own in (folder, *folder.parents) if own.is_dir()), Path("/"))
    size, incomplete, counted = count_bytes(folder)
    free, writable = shutil.disk_usage(there).free, os.access(there, os.W_OK | os.X_OK)
    return Cache(name, folder, variable, size, incomplete, counted, free, writable)


def count_bytes(folder: Path, patience: float = PATIENCE) -> tuple[int, int, bool]:
    """Count the bytes of all files below a folder and of incomplete ones; False where that took too long."""
    size = incomplete = 0
    began = time.monotonic()
    for path, _, names in os.walk(folder):
        if time.monotonic() - began > patience:
            return size, incomplete, False
        for name in names:
            try:
                status = os.lstat(os.path.join(path, name))
            except OSError:  # another program removed it
                continue
            if stat.S_ISREG(status.st_mode):
                size += status.st_size
                incomplete += status.st_size * name.endswith(INCOMPLETE)
    return size, incomplete, True


def check_caches(caches: Sequence[Cache], *, offline: bool) -> Iterator[Finding]:
    """Check that caches can be written, and have room."""
    for own in caches:
        if not own.writable:
            yield Finding(
                "note" if offline else "broken",
                f"the cache of {own.name}, {own.folder}, cannot be written",
                "what is not in it yet cannot be fetched or kept",
                f"chown it, or export {own.variable}=FOLDER with a folder of yours",
            )
        if own.incomplete:
            yield Finding(
                "note",
                f"{scaled(own.incomplete, 'B')} in {own.folder} are downloads that were cut off",
                "they take room; the same download goes on from there",
                f"fetch them again, or find {own.folder} -name '*{INCOMPLETE}' -delete",
            )
    for free, names in {own.free: [other.name for other in caches if other.free == own.free] for own in caches}.items():
        if free < LITTLE:
            yield Finding(
                "slow",
                f"{scaled(free, 'B')} are free on the disk with the cache of {', '.join(names)}",
                "checkpoints and downloads take gigabytes, and a full disk ends a training",
                "hf cache rm or hf cache prune removes models that you do not need, and keep=1 checkpoints",
            )
