"""A kind of files that are read, and how a whole one is made."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def unchanged(path: Path, whole: bytes, read: object) -> None:
    """Any change of such a file has to be refused."""
    assert path.read_bytes() == whole, "was changed, and passed as whole"


@dataclass(frozen=True)
class Kind:
    """How a file is made whole and read.

    `check` gets the path of a changed file that was read, the bytes of the whole one and what was read, and compares
    that with what somebody else reads there. `refuses` tells whether what was read says of a part of the file that it is
    wrong. `memory` is what a file takes: its bytes, and what it says that it holds.
    """

    make: Callable[[Path], Path]
    read: Callable[[Path], Any]
    check: Callable[[Path, bytes, Any], None] = unchanged
    refuses: Callable[[Any], bool] = lambda read: False
    as_json: bool = False
    memory: Callable[[Path], int] = lambda path: path.stat().st_size
