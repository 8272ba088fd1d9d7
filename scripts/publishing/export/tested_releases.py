"""Know the releases of transformers that the code was tested with, and those that the code in a folder states."""

import re
from pathlib import Path

import transformers
from packaging.version import Version
from transformers.utils import logging

# What pyproject.toml admits at least, and what constraints.txt installs.
TESTED = {"oldest": "5.23", "newest": "5.24"}
STATED = re.compile(
    r"^# Made from qkv .*\n# Tested with transformers (?P<oldest>\d{1,4}\.\d{1,4}) to (?P<newest>\d{1,4}\.\d{1,4})\.$",
    re.M,
)
# Characters of a file that its header is within.
BEGINNING = 2000

logger = logging.get_logger(__name__)


def stated_releases(folder: Path) -> dict[str, str] | None:
    """Return the oldest and the newest release that the code in a folder was tested with; None without code of qkv."""
    for path in sorted(folder.glob("modeling_*.py")):
        if path.is_file():
            with path.open(encoding="utf-8", errors="replace") as file:
                if stated := STATED.search(file.read(BEGINNING)):
                    return stated.groupdict()
    return None


def is_outdated(tested: dict[str, str] | None) -> bool:
    """Return whether the installed qkv writes code that was tested with newer releases."""
    return tested is not None and release(tested["newest"]) < release(TESTED["newest"])


def untested(folder: Path, tested: dict[str, str] | None) -> str:
    """Return a sentence where the installed transformers is newer than the tested releases, else nothing."""
    if tested is None or release(transformers.__version__) <= release(tested["newest"]):
        return ""
    again = f"`qkv publish {folder} TARGET` publishes it again with code that was"
    mend = again if is_outdated(tested) else "install a qkv that was, and publish it again"
    return (
        f"the code in {folder} was tested with transformers {spelled(tested)} and not with {transformers.__version__}, "
        f"where it may compute something else in silence; {mend}"
    )


def warn_of_outdated_code(folder: Path) -> None:
    """Warn once where the code in a folder is older than the installed transformers, and qkv can write newer code."""
    tested = stated_releases(folder)
    # Our loggers do not follow the verbosity of transformers by themselves.
    if is_outdated(tested) and (sentence := untested(folder, tested)) and logging.get_verbosity() <= logging.WARNING:
        logger.warning_once(f"{sentence}. The installed qkv computes the model here, that code where qkv is missing")


def spelled(tested: dict[str, str]) -> str:
    """Return releases as text: 5.23 to 5.24, or 5.23 alone."""
    return " to ".join(dict.fromkeys((tested["oldest"], tested["newest"])))


def release(version: str) -> tuple[int, ...]:
    """Return the numbers of a release: (5, 24) of 5.24, of 5.24.1 and of 5.24.0.dev0."""
    return Version(version).release[:2]
