"""A client of the loopback Hub in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from checkout import PYTHONPATH

PROGRAM = str(Path(__file__).with_name("client.py"))


class Client:
    """A process that runs qkv commands and calls functions of this folder, one after the other.

    It takes less time than a process for each, and the address of the Hub is read when the client's libraries are imported.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def ask(self, **order: Any) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return dict(json.loads(self.process.stdout.readline()))

    def run(self, *words: str, **environment: str) -> dict[str, Any]:
        """The exit status of a command, and its `out` and `err`."""
        return self.ask(words=words, environment={"HF_TOKEN": "hf_alice", **environment})

    def call(self, function: str) -> Any:
        """The result of a function, named as `file.function`."""
        answer = self.ask(function=function, environment={})
        assert "traceback" not in answer, answer["traceback"]
        return answer["result"]


@contextmanager
def client(environment: dict[str, str], place: Path, *words: str) -> Iterator[Client]:
    """A client that runs in a folder; it has no qkv if `clean` is one of the words."""
    variables = {**environment, "PYTHONPATH": PYTHONPATH, "COLUMNS": "140"}
    command, pipe = [sys.executable, PROGRAM, *words], subprocess.PIPE
    process = subprocess.Popen(command, env=variables, cwd=place, stdin=pipe, stdout=pipe, text=True)
    try:
        yield Client(process)
    finally:
        process.communicate(timeout=20)
    assert process.returncode == 0
