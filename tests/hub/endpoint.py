"""The Hub that tests speak to: the loopback one, or the one that QKV_TEST_HUB names, with a token."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from checkout import PYTHONPATH
from loopback import Hub, serving
from loopback.server import environment

TESTS = Path(__file__).resolve().parent
DELETE = "import sys; from huggingface_hub import delete_repo as d; [d(name, missing_ok=True) for name in sys.argv[1:]]"


@dataclass(frozen=True)
class Endpoint:
    """A Hub, a user there, and the namespace in which a run of the tests makes repositories with names of its own."""

    hub: Hub | None
    url: str
    token: str
    namespace: str
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    def environment(self, home: Path, **extra: Any) -> dict[str, str]:
        """The environment of a client subprocess with an empty cache."""
        place = {"QKV_TEST_NAMESPACE": self.namespace, "QKV_TEST_RUN": self.run}
        return environment(self.url, home, self.token, **place, **extra)

    def delete(self, home: Path, *labels: str) -> None:
        """Remove repositories that clients have left for others."""
        names = [f"{self.namespace}/qkv-test-{self.run}-{label}" for label in labels]
        subprocess.run([sys.executable, "-c", DELETE, *names], env=self.environment(home), check=True)


@contextmanager
def chosen(folder: Path, variables: Mapping[str, str] = os.environ) -> Iterator[Endpoint]:
    """A loopback Hub; or the Hub of QKV_TEST_HUB, skipping the test where there is no token for it."""
    url, token = variables.get("QKV_TEST_HUB"), variables.get("HF_TOKEN")
    if not url:
        with serving() as hub:
            yield Endpoint(hub, hub.url, "hf_alice", "alice")
    elif not token or "HF_TEST_NAMESPACE" not in variables:
        pytest.skip(f"tests make repositories on {url}: set HF_TOKEN to a token that may write to HF_TEST_NAMESPACE")
    else:
        yield Endpoint(None, url.rstrip("/"), token, variables["HF_TEST_NAMESPACE"])


class Answers(dict[str, Any]):
    """{job: its answer}; asking for one that failed raises with its traceback."""

    def __getitem__(self, job: str) -> Any:
        answer = super().__getitem__(job)
        if isinstance(answer, dict) and "traceback" in answer:
            raise AssertionError(answer["traceback"])
        return answer


class Client:
    """Jobs of `tests/hub/{script}.py` under way in a process of their own."""

    def __init__(self, script: str, jobs: list[str], environment: dict[str, str]) -> None:
        command = [sys.executable, str(TESTS / f"{script}.py"), *jobs]
        pipe = subprocess.PIPE
        environment = {**environment, "PYTHONPATH": PYTHONPATH}
        self.process = subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)

    def answers(self) -> Answers:
        out, err = self.process.communicate(timeout=300)
        if self.process.returncode:
            raise RuntimeError(f"the client failed: {err.strip()[-2000:]}")
        return Answers(json.loads(out.splitlines()[-1]))


class Commands:
    """A process that runs qkv commands one after the other, for importing transformers takes longer than most."""

    def __init__(self, environment: dict[str, str], place: Path) -> None:
        pipe, program = subprocess.PIPE, str(TESTS / "command_client.py")
        variables = {**environment, "PYTHONPATH": PYTHONPATH, "COLUMNS": "140"}
        self.process = subprocess.Popen(
            [sys.executable, program], env=variables, cwd=place, stdin=pipe, stdout=pipe, text=True
        )

    def run(self, *words: str, **environment: str) -> dict[str, Any]:
        """The exit status of a command, and its `out` and `err`."""
        order = {"words": words, "environment": {"HF_TOKEN": "hf_alice", **environment}}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        self.process.stdin.close()
        assert self.process.wait(20) == 0
