"""The loopback Hub itself: it serves this machine alone, ends with its test, and can be replaced by another."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from endpoint import TESTS, chosen
from loopback.process import LoopbackHub


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackHub]:
    with LoopbackHub(tmp_path_factory.mktemp("loopback") / "hub") as started:
        yield started


def test_only_this_machine_is_served(hub: LoopbackHub) -> None:
    socket.create_connection(("127.0.0.1", hub.port), timeout=5).close()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", hub.port), timeout=5)


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = f"from loopback.process import LoopbackHub; print(LoopbackHub({str(tmp_path)!r}).start().port, flush=True)"
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    started = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, check=True)
    deadline = time.monotonic() + 30
    with pytest.raises(ConnectionRefusedError):
        while time.monotonic() < deadline:
            socket.create_connection(("127.0.0.1", int(started.stdout)), timeout=5).close()
            time.sleep(0.1)


@pytest.mark.slow
def test_the_tests_of_any_hub_run_against_one_elsewhere(tmp_path: Path) -> None:
    with LoopbackHub(tmp_path / "hub", page_size=5) as hub:
        environment = {**os.environ, "QKV_TEST_HUB": hub.url, "HF_TOKEN": "hf_alice"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS / "test_endpoint.py")]
        result = subprocess.run(command, env=environment, cwd=TESTS.parent, capture_output=True, text=True)
        done = [(entry["method"], entry["path"]) for entry in hub.log() if entry["status"] == 200]
    assert result.returncode == 0 and "skipped" not in result.stdout, result.stdout[-2000:]
    made, deleted = done.count(("POST", "/api/repos/create")), done.count(("DELETE", "/api/repos/delete"))
    assert made == deleted > 0


def test_another_hub_needs_a_token(tmp_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match="set HF_TOKEN to a token that may write"):
        chosen(tmp_path, {"QKV_TEST_HUB": "https://hub.example"}).__enter__()


@pytest.mark.parametrize(("namespace", "expected"), [(None, "bob"), ("acme", "acme")])
def test_another_hub_is_used_as_its_user(
    hub: LoopbackHub, tmp_path: Path, namespace: str | None, expected: str
) -> None:
    variables = {"QKV_TEST_HUB": f"{hub.url}/", "HF_TOKEN": "hf_bob"}
    with chosen(tmp_path, variables | ({"HF_TEST_NAMESPACE": namespace} if namespace else {})) as endpoint:
        assert (endpoint.hub, endpoint.url, endpoint.namespace) == (None, hub.url, expected)
        environment = endpoint.environment(tmp_path)
    assert (environment["HF_ENDPOINT"], environment["HF_TOKEN"]) == (hub.url, "hf_bob")
