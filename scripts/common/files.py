"""Is it on the disk? What was written may still be in memory only, and lost with the power."""

import os
from pathlib import Path


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
