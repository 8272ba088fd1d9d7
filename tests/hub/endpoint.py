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
from loopback.process import LoopbackHub

TESTS = Path(__file__).resolve().parent
DELETE = "import sys; from huggingface_hub import delete_repo as d; [d(name, missing_ok=True) for name in sys.argv[1:]]"
WHO = "from huggingface_hub import whoami; print(whoami()['name'])"


@dataclass(frozen=True)
class Endpoint:
    """A Hub, a user there, and the namespace in which a run of the tests makes repositories with names of its own."""

    hub: LoopbackHub | None
    url: str
    token: str
    namespace: str
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    def environment(self, home: Path, *, xet: bool = False, **extra: Any) -> dict[str, str]:
        """The environment of a client subprocess with an empty cache."""
        hub = self.hub or LoopbackHub(home)
        # What is on this machine answers at once or never; others need more patience.
        patience = {} if self.hub else {"HF_XET_CLIENT_RETRY_MAX_ATTEMPTS": 5, "HF_XET_CLIENT_RETRY_BASE_DELAY": "3s"}
        place = {"HF_ENDPOINT": self.url, "QKV_TEST_NAMESPACE": self.namespace, "QKV_TEST_RUN": self.run}
        return hub.environment(home, self.token, xet=xet, **place, **patience, **extra)

    def delete(self, home: Path, *labels: str) -> None:
        """Remove repositories that clients have left for others."""
        names = [f"{self.namespace}/qkv-test-{self.run}-{label}" for label in labels]
        subprocess.run([sys.executable, "-c", DELETE, *names], env=self.environment(home), check=True)


@contextmanager
def chosen(folder: Path, variables: Mapping[str, str] = os.environ) -> Iterator[Endpoint]:
    """A loopback Hub in the folder; or what QKV_TEST_HUB names, skipping the test where there is no token for it."""
    url, token = variables.get("QKV_TEST_HUB"), variables.get("HF_TOKEN")
    if not url:
        with LoopbackHub(folder / "hub", page_size=5) as hub:
            yield Endpoint(hub, hub.url, "hf_alice", "alice")
    elif not token:
        pytest.skip(f"the tests against {url} make repositories there: set HF_TOKEN to a token that may write")
    else:
        found = Endpoint(None, url.rstrip("/"), token, variables.get("HF_TEST_NAMESPACE", ""))
        yield found if found.namespace else Endpoint(None, found.url, token, owner(found, folder))


def owner(endpoint: Endpoint, folder: Path) -> str:
    """The user of the token."""
    environment = endpoint.environment(folder / "home")
    result = subprocess.run([sys.executable, "-c", WHO], env=environment, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"{endpoint.url} does not know the token in HF_TOKEN: {result.stderr.strip()[-300:]}")
    return result.stdout.strip()


class Answers(dict[str, Any]):
    """{job: what it found}; asking for one that failed raises with its traceback."""

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
