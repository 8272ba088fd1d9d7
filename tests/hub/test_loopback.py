"""The loopback Hub as only it can be tested: with several users, with a log of what was asked, and with faults."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import loopback_jobs as jobs
from client import digest
from endpoint import TESTS, Answers, Client, chosen
from loopback.process import LoopbackHub

LARGE = digest(jobs.LARGE)
PART = 5_000_000
COMMIT = "POST /api/models/alice/qkv-test-run-{}-.*/commit/"
FAULTS: list[dict[str, Any]] = [
    {"match": f"GET /lfs/{LARGE}", "action": "drop", "when": "sending", "bytes": 11_000_000},
    {
        "match": "POST /alice/qkv-test-run-too-many-.*/batch",
        "action": "status",
        "status": 429,
        "headers": {"Retry-After": "1"},
    },
    {"match": COMMIT.format("unavailable"), "action": "status", "status": 503},
    {"match": COMMIT.format("lost-before"), "action": "drop"},
    {"match": COMMIT.format("lost-after"), "action": "drop", "when": "reply"},
    {"match": COMMIT.format("race"), "action": "delay", "seconds": 0.5},
]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackHub]:
    with LoopbackHub(tmp_path_factory.mktemp("loopback") / "hub", part_size=PART) as started:
        yield started


@pytest.fixture(scope="module")
def found(hub: LoopbackHub, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What the jobs found, and under `log` what they asked for."""
    hub.faults(*FAULTS)
    groups = {jobs.QUICK: False, jobs.WAITING: False, jobs.THROUGH_XET: True}
    clients = [client(hub, tmp_path_factory.mktemp("home"), *group, xet=xet) for group, xet in groups.items()]
    merged = Answers({name: answer for running in clients for name, answer in running.answers().items()})
    merged["log"] = hub.log()
    return merged


def client(hub: LoopbackHub, home: Path, *group: Any, xet: bool) -> Client:
    environment = hub.environment(
        home, xet=xet, QKV_TEST_NAMESPACE="alice", QKV_TEST_RUN="run", HF_XET_CLIENT_RETRY_MAX_ATTEMPTS=20
    )
    return Client("loopback_jobs", [job.__name__ for job in group], environment)


def asked(found: Answers, line: str) -> list[int | str]:
    """The outcomes of the requests whose line begins so."""
    return [entry["status"] for entry in found["log"] if f"{entry['method']} {entry['path']}".startswith(line)]


@pytest.mark.parametrize(
    ("what", "kind", "status"),
    [
        ("bob sees hidden", "RepositoryNotFoundError", 404),
        ("nobody sees hidden", "RepositoryNotFoundError", 401),
        ("bob commits", "HfHubHTTPError", 403),
        ("bob merges", "HfHubHTTPError", 403),
        ("bob deletes", "HfHubHTTPError", 403),
        ("bob creates for alice", "HfHubHTTPError", 403),
        ("reader commits", "HfHubHTTPError", 403),
        ("nobody commits", "HfHubHTTPError", 401),
    ],
)
def test_others_may_not(found: Answers, what: str, kind: str, status: int) -> None:
    answer = found["users"]["refused"][what]
    assert (answer["kind"], answer["status"]) == (kind, status)


def test_others_may_read_what_is_public(found: Answers) -> None:
    answer = found["users"]
    assert answer["listed"] == [answer["public"]]
    assert answer["seen"] == {"reader": answer["hidden"], "bob": digest(b"1")}


def test_a_pull_request_is_its_authors(found: Answers) -> None:
    answer = found["proposals"]
    assert answer["url"].endswith("/discussions/1")
    assert answer["reader"] == 403
    assert answer["files"] == [".gitattributes", "a.txt", "model.safetensors"]


def test_repositories_move_and_go(found: Answers) -> None:
    answer = found["organisations"]
    assert answer["moved"] == ["RepositoryNotFoundError", "acme/qkv-test-team-moved"]
    assert answer["deleted"] == "RepositoryNotFoundError"


@pytest.mark.parametrize(("who", "status"), [("bob", 403), ("nobody", 401)])
@pytest.mark.parametrize("path", ["a.txt", "a.bin"])
def test_a_gate_is_closed(found: Answers, who: str, status: int, path: str) -> None:
    answer = found["gates"]["refused"][f"{who} {path}"]
    assert (answer["kind"], answer["status"]) == ("GatedRepoError", status)


def test_a_gate_opens(found: Answers) -> None:
    assert found["gates"]["shown"] == "auto"
    assert found["gates"]["let in"] == digest(b"1")


def test_a_large_file_goes_up_in_parts(found: Answers) -> None:
    assert asked(found, f"PUT /lfs/{LARGE}/") == [200, 200, 200]
    assert asked(found, f"POST /lfs/{LARGE}?") == [200]


def test_a_download_goes_on_where_it_was_cut(found: Answers) -> None:
    assert asked(found, f"GET /lfs/{LARGE}") == [200, 206]
    assert found["large"] == LARGE


def test_a_token_never_reaches_the_other_origin(found: Answers) -> None:
    assert {entry["auth"] for entry in found["log"] if entry["storage"]} == {False}


def test_what_is_in_the_cache_is_not_sent_again(found: Answers) -> None:
    answer = found["cache"]
    first, again, second = answer["paths"]
    assert first == again != second
    assert answer["contents"] == [digest(b"cached")] * 2
    assert asked(found, f"GET /lfs/{digest(b'cached')}") == [200]


def test_too_many_requests_are_waited_for(found: Answers) -> None:
    assert found["too_many"]["seconds"] >= 1
    assert asked(found, "POST /alice/qkv-test-run-too-many-") == [429, 200]
    assert found["too_many"]["content"] == digest(b"\0")


@pytest.mark.parametrize(("job", "status"), [("unavailable", 503), ("lost_before", None)])
def test_a_commit_that_fails_changes_nothing(found: Answers, job: str, status: int | None) -> None:
    answer = found[job]
    before, between, after = answer["heads"]
    assert answer["failed"]["kind"] and answer["failed"]["status"] == status
    assert before == between != after
    assert answer["history"] == ["1", "initial commit"]
    assert answer["files"] == [".gitattributes", "a.txt", "model.safetensors"]


def test_a_commit_whose_reply_is_lost_is_in(found: Answers) -> None:
    answer = found["lost_after"]
    before, between, after = answer["heads"]
    assert answer["failed"]["kind"] is not None
    assert before != between == after
    assert answer["history"] == ["1", "initial commit"]


@pytest.mark.parametrize("name", ["before", "after"])
def test_weights_that_arrived_are_not_sent_again(found: Answers, name: str) -> None:
    assert asked(found, f"PUT /lfs/{digest(jobs.WEIGHTS[name])}") == [200]


def test_of_two_commits_on_one_parent_the_later_is_refused(found: Answers) -> None:
    answer = found["race"]
    assert sorted(answer["statuses"], key=str) == [412, None]
    assert sorted(answer["files"]) in ([".gitattributes", "one.txt"], [".gitattributes", "two.txt"])


def test_chunks_make_the_file_again(found: Answers) -> None:
    answer = found["assembled"]
    assert answer["through xet"] == [True, True, True]
    assert answer["contents"] == [digest(data) for data in jobs.COMPRESSIBLE.values()]


def test_the_hub_knows_a_model_by_its_files(found: Answers) -> None:
    answer = found["information"]
    assert answer["tags"] == ["own", "transformers", "safetensors", "qkv_encoder", "custom_code"]
    assert (answer["task"], answer["library"], answer["license"]) == ("fill-mask", "transformers", "apache-2.0")
    assert answer["sizes"]["model.safetensors"] == 1
    assert answer["who"] == "acme"


@pytest.mark.parametrize(("xet", "path"), [(False, "PUT /lfs/"), (True, "POST /xet/v1/xorbs/")])
def test_an_upload_survives_the_death_of_the_hub(tmp_path: Path, xet: bool, path: str) -> None:
    with LoopbackHub(tmp_path / "hub") as hub:
        hub.faults({"match": path, "action": "exit", "when": "body", "bytes": 100_000})
        uploading = client(hub, tmp_path / "home", jobs.killed, xet=xet)
        assert hub.wait() == 137
        hub.start()
        answer = uploading.answers()["killed"]
    assert answer["content"] == digest(jobs.WEIGHTS["killed"])
    assert answer["history"] == ["survived", "initial commit"]


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
