"""Real clients get the same answers from the loopback Hub and, by `make test-hub`, from the real one.

Each client process does all jobs, once with its large files through LFS and once through Xet.
"""

from collections.abc import Iterator
from typing import Any

import pytest

import endpoint_jobs as jobs
from client import digest
from endpoint import Answers, Client, Endpoint, chosen

OLD, NEW = (digest(jobs.WEIGHTS[name]) for name in ("old", "new"))
ONE, TWO = digest(b"1"), digest(b"2")
MODES = ("lfs", "xet")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with chosen(tmp_path_factory.mktemp("endpoint")) as found:
        yield found


@pytest.fixture(scope="module")
def answers(endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answers]:
    homes = {mode: tmp_path_factory.mktemp(mode) for mode in MODES}
    environments = {mode: endpoint.environment(homes[mode], xet=mode == "xet") for mode in MODES}
    clients = {mode: Client("endpoint_jobs", list(jobs.JOBS), environments[mode]) for mode in MODES}
    return {mode: client.answers() for mode, client in clients.items()}


@pytest.fixture(params=MODES)
def found(answers: dict[str, Answers], request: pytest.FixtureRequest) -> Answers:
    return answers[request.param]


def test_a_commit_is_all_its_changes_at_once(found: Answers) -> None:
    answer = found["commits"]
    config = digest(jobs.CONFIG)
    assert answer["before"] == {"model.safetensors": OLD, "config.json": config, "a/b/old.py": digest(b"x = 1\n")}
    assert answer["after"] == {"model.safetensors": NEW, "config.json": config, "new.py": digest(b"y = 2\n")}


def test_what_is_there_already_makes_no_commit(found: Answers) -> None:
    answer = found["commits"]
    before, after, again = answer["shas"]
    assert before != after == again == answer["head"]
    assert answer["history"] == ["second", "first", "initial commit"]


def test_a_conflict_changes_nothing(found: Answers) -> None:
    answer = found["conflicts"]
    assert answer["stale parent"]["status"] == 412 and answer["kept"] == ONE and answer["again"]
    assert "Invalid metadata in README.md" in answer["not metadata"]["message"]


def test_branches_and_tags_name_commits(found: Answers) -> None:
    answer = found["names"]
    assert answer["refs"] == {"main": answer["first"], "side": answer["side"], "v1": answer["first"]}
    contents = {revision: files["a.txt"] for revision, files in answer["contents"].items()}
    assert contents == {"main": ONE, "side": TWO, "v1": ONE, answer["side"]: TWO}


def test_a_pull_request_does_not_change_main(found: Answers) -> None:
    answer = found["pull_requests"]
    assert answer["main"] == {"a.txt": ONE, "b.txt": ONE}
    assert answer["request"] == {"a.txt": ONE, "model.safetensors": OLD}
    assert answer["refs"] == ["refs/pr/1"] and answer["status"] in ("draft", "open")


def test_a_tree_is_whole_however_many_its_pages(found: Answers) -> None:
    answer = found["trees"]
    others = {**dict.fromkeys([".gitattributes", "a", "b", *answer["paths"]]), "model.safetensors": OLD}
    assert answer["info"] == others


def test_a_private_repository_is_nobody_elses(found: Answers) -> None:
    answer: dict[str, Any] = found["outsiders"]
    assert answer["private"] is True
    assert answer["without a token"]["kind"] == "RepositoryNotFoundError"
    assert answer["without a token"]["status"] == 401


@pytest.mark.parametrize(
    ("what", "kind", "status"),
    [
        ("forged token", "HfHubHTTPError", 401),
        ("no repository", "RepositoryNotFoundError", 404),
        ("no revision", "RevisionNotFoundError", 404),
        ("no file", "RemoteEntryNotFoundError", 404),
    ],
)
def test_what_is_missing_has_its_own_exception(found: Answers, what: str, kind: str, status: int) -> None:
    answer = found["outsiders"][what]
    assert (answer["kind"], answer["status"]) == (kind, status)
