"""Pages of what was found, which `make` writes: on what they were made, and where they go."""

import platform
from importlib.metadata import version
from pathlib import Path

import pytest


def made_with(*programs: str) -> str:
    """The versions of programs, of Python, and the machine."""
    named = [f"{name} {version(name)}" for name in programs]
    return f"{', '.join(named)}; Python {platform.python_version()}, {platform.machine()}."


def page_of(session: pytest.Session) -> Path | None:
    """Where the page of a session goes that asked for one and passed; in the process that has all results."""
    path: Path | None = session.config.getoption("--page")
    return None if session.exitstatus or hasattr(session.config, "workerinput") else path
