"""Processes that are one world: forked, as a launcher would start them, from one that has imported everything once.

As a program it is that one: it reads a job from each line of its standard input, and answers with a line.
"""

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

# Seconds that the processes of a world have to end after one was killed; launchers give them some, too.
GRACE = 20


@cache
def server() -> subprocess.Popen[str]:
    """Start the process that is forked, one for all tests of this one."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = subprocess.Popen([sys.executable, __file__], env={**os.environ, "OMP_NUM_THREADS": "1"}, **pipes)
    atexit.register(started.communicate)  # it ends with its input
    return started


def launch(module: str, words: list[Any], log: Path, processes: int = 2, **variables: str) -> list[int]:
    """Call `main` of a module with these words in several processes; how each ended, as subprocess has it.

    What each says is added to `log` with its rank.
    """
    job = {"module": module, "words": list(map(str, words)), "log": str(log), "variables": variables}
    server().stdin.write(json.dumps({**job, "processes": processes}) + "\n")
    server().stdin.flush()
    return json.loads(server().stdout.readline())


def run_together(module: str, words: list[Any], folder: Path, processes: int = 2, **variables: str) -> None:
    """Call `main` of a module in several processes, which must all end well; the folder keeps what they say."""
    statuses = launch(module, words, folder / "log", processes, **variables)
    failed = [rank for rank, status in enumerate(statuses) if status]
    assert not failed, "\n".join(f"{rank}: {(folder / f'log-{rank}').read_text()}" for rank in failed)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def fork(job: dict[str, Any], rank: int, port: int) -> int:
    child = os.fork()
    if child:
        return child
    world = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": job["processes"], "MASTER_PORT": port}
    if job["processes"] > 1:
        os.environ.update({name: str(value) for name, value in world.items()}, MASTER_ADDR="127.0.0.1")
    os.environ.update(job["variables"])
    torch.set_num_threads(1)  # makes the pool that the fork has lost, before two threads do it at once and one fails
    status = 99
    try:
        log = os.open(f"{job['log']}-{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(log, stream)
        status = import_module(job["module"]).main(*job["words"]) or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def watch(job: dict[str, Any]) -> list[int]:
    """Fork the processes of a world and wait for all of them."""
    port = free_port()
    children = [fork(job, rank, port) for rank in range(job["processes"])]
    found: dict[int, int] = {}
    deadline = None
    while len(found) < len(children):
        child, status = os.waitpid(-1, os.WNOHANG)
        if child:
            found[child] = os.waitstatus_to_exitcode(status)
            deadline = deadline or (time.monotonic() + GRACE if found[child] else None)
        elif deadline and time.monotonic() > deadline:
            for late in set(children) - set(found):
                os.kill(late, signal.SIGKILL)
        time.sleep(0.005)
    return [found[child] for child in children]


def serve() -> None:
    import conftest  # noqa: F401  makes the checkout importable
    import every_test  # noqa: F401

    import tiny

    with TemporaryDirectory() as folder:  # transformers makes its tables for the first model that is saved
        tiny.CASES[0].build().save_pretrained(folder)
    for line in sys.stdin:
        job = json.loads(line)
        import_module(job["module"])
        gc.collect()
        gc.freeze()  # no child goes over what it shares with the others, and so none copies it
        print(json.dumps(watch(job)), flush=True)


if __name__ == "__main__":
    serve()
