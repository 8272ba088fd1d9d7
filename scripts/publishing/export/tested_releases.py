"""Compare the releases of transformers that this qkv was tested with, and that a published folder states."""

import re
from pathlib import Path

import transformers
from packaging.version import Version
from transformers.utils import logging

# The oldest release that pyproject.toml admits, and the newest, which constraints.txt installs.
TESTED = {"oldest": "5.23", "newest": "5.24"}
STATED = re.compile(
    r"^# Made from qkv .*\n# Tested with transformers (?P<oldest>\d{1,4}\.\d{1,4}) to (?P<newest>\d{1,4}\.\d{1,4})\.$",
    re.MULTILINE,
)
# Characters that hold the header of a file.
BEGINNING = 2000

logger = logging.get_logger(__name__)


def stated_releases(folder: Path) -> dict[str, str] | None:
    """Return the oldest and the newest release that the code in a folder was tested with; None without code of qkv."""
    for path in filter(Path.is_file, sorted(folder.glob("modeling_*.py"))):
        with path.open(encoding="utf-8", errors="replace") as file:
            if stated := STATED.search(file.read(BEGINNING)):
                return stated.groupdict()
    return None


def is_outdated(stated: dict[str, str] | None) -> bool:
    """Return whether this qkv writes code that was tested with newer releases."""
    return stated is not None and release(stated["newest"]) < release(TESTED["newest"])


def untested(folder: Path, stated: dict[str, str] | None) -> str:
    """Return a sentence where the installed transformers is newer than the stated releases, else nothing."""
    installed = transformers.__version__
    if stated is None or release(installed) <= release(stated["newest"]):
        return ""
    newer = "" if is_outdated(stated) else "with a newer qkv, "
    return (
        f"the code in {folder}, which computes the model where qkv is missing, was tested with transformers "
        f"{spelled(stated)} and not with {installed}, where its numbers may be wrong; {newer}`qkv publish {folder} "
        "TARGET` publishes it again with newer code"
    )


def warn_of_outdated_code(folder: Path) -> None:
    """Warn once where the code in a folder is older than the installed transformers, and this qkv writes newer code."""
    stated = stated_releases(folder)
    # Our loggers do not follow the verbosity of transformers by themselves.
    if is_outdated(stated) and (sentence := untested(folder, stated)) and logging.get_verbosity() <= logging.WARNING:
        logger.warning_once(sentence)


def spelled(releases: dict[str, str]) -> str:
    """Return releases as text: 5.23 to 5.24."""
    return "{oldest} to {newest}".format(**releases)


def release(version: str) -> tuple[int, ...]:
    """Return the numbers of a release: (5, 24) of 5.24, of 5.24.1 and of 5.24.0.dev0."""
    return Version(version).release[:2]
