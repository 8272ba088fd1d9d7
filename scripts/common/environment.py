"""Describe the software, processor and commit behind a result."""

import os
import platform
import shlex
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import qkv

DEPENDENCIES = ("torch", "transformers", "accelerate", "tokenizers", "numpy", "scikit-learn", "sacrebleu")


def versions() -> dict[str, str]:
    """Return the versions of Python, qkv and the libraries that results depend on."""
    numbers = {"python": platform.python_version(), "qkv": qkv.__version__}
    for name in DEPENDENCIES:
        try:
            numbers[name] = version(name)
        except PackageNotFoundError:
            numbers[name] = "unknown"
    return numbers


def processor(table: Path = Path("/proc/cpuinfo")) -> str | None:
    """Return the processor's name, or None where it is unknown."""
    try:
        lines = table.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def commit() -> str | None:
    """Return the commit of qkv's checkout, marked where the code has changed since; None outside a checkout."""
    root = Path(__file__).resolve().parents[2]

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=True).stdout.strip()

    try:
        # An environment may lie inside somebody else's repository.
        if Path(git("rev-parse", "--show-toplevel")) != root:
            return None
        changed = git("status", "--porcelain", "--", ".", ":!model_cards")
        return git("rev-parse", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def without_folder(path: str) -> str:
    """Reduce a path that is absolute or leads upwards to its name; leave other paths alone."""
    return Path(path).resolve().name if Path(path).is_absolute() or ".." in Path(path).parts else path


def is_local(where: str) -> bool:
    """Tell whether a file or folder of that name is here; a text may be too long for the name of one."""
    return os.path.exists(where)  # unlike Path.exists, which raises OSError for that


def data_name(where: str) -> str:
    """Return a public name of data: a local file or folder without its path, or the Hub id as it is."""
    return Path(where).resolve().name if is_local(where) else where


def public_command(words: str) -> str:
    """Return a command line without the folders of this machine."""
    pairs = [word.rpartition("=") for word in shlex.split(words)]
    known = ((key, equals, data_name(value) if key == "data" else value) for key, equals, value in pairs)
    return shlex.join(key + equals + without_folder(value) for key, equals, value in known)
