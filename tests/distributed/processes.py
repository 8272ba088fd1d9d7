"""Processes that are one world, as a launcher would start them."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def run_together(words: list[Any], folder: Path, processes: int = 2, **variables: str) -> None:
    """Run a Python program in several processes, as a launcher would; the folder keeps the errors of each."""
    world = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), **variables}
    started = []
    for rank in map(str, range(processes)):
        own = {"RANK": rank, "LOCAL_RANK": rank, "OMP_NUM_THREADS": "1"}
        # A pipe that is full because nobody reads it yet would stop the process, and so all of them.
        with (folder / f"errors-{rank}").open("w") as errors:
            command = [sys.executable, *map(str, words)]
            started.append(subprocess.Popen(command, env={**os.environ, **world, **own}, stderr=errors))
    try:
        for rank, process in enumerate(started):
            assert process.wait(timeout=1500) == 0, (folder / f"errors-{rank}").read_text()
    finally:  # one that waits for a partner that has failed
        for process in started:
            process.kill()
