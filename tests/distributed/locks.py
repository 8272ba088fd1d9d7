"""Files that another process has locked."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOLD = """
import fcntl, sys
with open(sys.argv[1], "a") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print("refused", flush=True)
    else:
        print("locked", flush=True)
        sys.stdin.read()
"""


def is_refused(path: Path) -> bool:
    """Whether another process cannot lock a file, for this one has."""
    words = [sys.executable, "-c", HOLD, str(path)]
    return subprocess.run(words, input="", capture_output=True, text=True, check=True).stdout == "refused\n"


@contextmanager
def locked_by_another(path: Path) -> Iterator[None]:
    """Have another process lock a file, and kill it after the block."""
    words = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
        yield
        holder.kill()
