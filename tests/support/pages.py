"""Pages of what was found, which `make` writes: on what they were made, and where they go."""

import json
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from qkv.scripts.common.environment import commit, processor, versions


def made_with(*programs: str) -> str:
    """The versions of programs, of Python, and the machine."""
    named = [f"{name} {version(name)}" for name in programs]
    return f"{', '.join(named)}; Python {platform.python_version()}, {platform.machine()}."


def page_of(session: pytest.Session) -> Path | None:
    """Where the page of a session goes that asked for one and passed; in the process that has all results."""
    path: Path | None = session.config.getoption("--page")
    return None if session.exitstatus or hasattr(session.config, "workerinput") else path


@dataclass
class RecordedPage:
    """A page with a row for each part of a suite, and beside it a record with the figures of each.

    A session replaces the rows of the parts that it ran, and keeps the others. `head` may name {made_with}, {processor}
    and {record}.
    """

    head: str
    programs: tuple[str, ...]
    cells: Callable[[dict[str, Any]], Iterable[str]]
    found: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, what: str, seed: int, began: float, **figures: Any) -> None:
        """Put in what a part found that began at a moment of the monotonic clock."""
        minutes = round((time.monotonic() - began) / 60, 1)
        self.found[what] = {**figures, "seed": seed, "commit": commit(), "minutes": minutes}

    def write(self, session: pytest.Session) -> None:
        """Write the record and the page of a session that asked for it."""
        if not (path := page_of(session)) or not self.found:
            return
        file = path.with_suffix(".json")
        before = json.loads(file.read_text(encoding="utf-8"))["found"] if file.is_file() else {}
        facts = {"processor": processor(), "versions": versions(), "found": before | self.found}
        file.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        head = self.head.format(**facts, made_with=made_with(*self.programs), record=file.name)
        rows = [(what, *self.cells(each), f"{each['minutes']:g}") for what, each in facts["found"].items()]
        path.write_text(head + "".join(f"| {' | '.join(row)} |\n" for row in rows), encoding="utf-8")
