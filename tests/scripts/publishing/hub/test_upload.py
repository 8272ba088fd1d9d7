"""Uploads as the Hub sees them: one commit, only what is missing, nothing in a dry run, a sentence for every refusal."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi
from huggingface_hub.hf_api import GitRefInfo, GitRefs

from loopback.process import LoopbackHub
from qkv.scripts.publishing.hub.options import PublishOptions
from qkv.scripts.publishing.hub.upload import Repository
from uploads import NEW, OLD, Client, client, commits, fill, hashes, look, tree

COMMIT = "POST .*/commit/"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackHub]:
    with LoopbackHub(tmp_path_factory.mktemp("upload") / "hub") as hub:
        yield hub


@pytest.fixture(scope="module")
def lfs(hub: LoopbackHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with client(hub, tmp_path_factory.mktemp("lfs")) as uploader:
        yield uploader


@pytest.fixture(scope="module")
def xet(hub: LoopbackHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with client(hub, tmp_path_factory.mktemp("xet"), xet=True) as uploader:
        yield uploader


@pytest.fixture(params=["lfs", "xet"])
def either(request: pytest.FixtureRequest) -> Client:
    return request.getfixturevalue(request.param)


@pytest.fixture
def repo(request: pytest.FixtureRequest) -> str:
    """A name of its own for each test."""
    return "alice/" + "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:60].strip("-")


@pytest.fixture(autouse=True)
def undisturbed(hub: LoopbackHub) -> None:
    hub.faults()
    hub.log()


def weights(hub: LoopbackHub) -> list[str]:
    """The requests since the last look that brought content of large files, through LFS or Xet."""
    return [request["path"] for request in hub.log() if request["method"] == "PUT" or "/xorbs/" in request["path"]]


def states(answer: dict[str, Any]) -> dict[str, str]:
    return {change["name"]: change["state"] for change in answer["changes"]}


@pytest.mark.parametrize(
    ("revision", "expected"), [("main", True), ("next", True), ("nex", False), ("v1", False), ("refs/pr/3", True)]
)
def test_a_branch_is_there_by_its_whole_name(revision: str, expected: bool) -> None:
    refs = GitRefs(
        converts=[],
        branches=[GitRefInfo(name=name, ref=name, target_commit="0" * 40) for name in ("main", "next")],
        tags=[GitRefInfo(name="v1", ref="v1", target_commit="0" * 40)],
    )
    assert Repository(HfApi(), "a/b", PublishOptions(revision=revision)).has_branch(refs) is expected


def test_a_version_is_one_commit_and_the_same_again_is_none(
    hub: LoopbackHub, either: Client, repo: str, tmp_path: Path
) -> None:
    first = either.upload(fill(tmp_path / "a", OLD), repo)
    assert set(states(first).values()) == {"new"} and tree(hub, repo) == hashes(OLD)
    second = either.upload(fill(tmp_path / "a", NEW), repo)
    assert states(second) == {
        **{name: "new" for name in NEW.keys() - OLD.keys()},
        **{name: "deleted" for name in OLD.keys() - NEW.keys()},
        **{"config.json": "changed", "LICENSE": "same"},
    }
    assert tree(hub, repo) == hashes(NEW)
    assert ".gitattributes" in {entry["path"] for entry in look(hub, repo, "/tree/main")}
    again = either.upload(tmp_path / "a", repo)
    assert set(states(again).values()) == {"same"} and again["commit"] == second["commit"]
    assert commits(hub, repo)[:2] == [second["commit"], first["commit"]] and len(commits(hub, repo)) == 3
    assert again["url"] == f"{hub.url}/{repo}/tree/{second['commit']}"
    shard = "model-00001-of-00002.safetensors"
    weights = {**NEW, shard: OLD["model.safetensors"]}
    third = either.upload(fill(tmp_path / "a", weights), repo)
    assert [name for name, state in states(third).items() if state == "changed"] == [shard]
    assert tree(hub, repo) == hashes(weights)


def test_what_is_there_is_not_sent_again(hub: LoopbackHub, either: Client, repo: str, tmp_path: Path) -> None:
    """A refused commit leaves its weights there, and the next needs to send none of them."""
    files = {name: random.randbytes(len(data)) if "safetensors" in name else data for name, data in NEW.items()}
    hub.faults({"match": COMMIT, "action": "status", "status": 400, "message": "not now"})
    refused = either.upload(fill(tmp_path / "a", files), repo)
    assert "not now" in refused["error"] and tree(hub, repo) == {}
    assert weights(hub)
    assert "error" not in either.upload(tmp_path / "a", repo)
    assert tree(hub, repo) == hashes(files) and not weights(hub)


def test_a_dry_run_writes_nothing(hub: LoopbackHub, either: Client, repo: str, tmp_path: Path) -> None:
    there = either.upload(fill(tmp_path / "a", OLD), repo)
    absent = either.upload(tmp_path / "a", f"{repo}-absent", dry_run=True)
    assert absent["commit"] is None and set(states(absent).values()) == {"new"}
    hub.log()
    answer = either.upload(fill(tmp_path / "a", NEW), repo, dry_run=True, revision="branch", tag="v1")
    assert answer["commit"] == there["commit"] and answer["changes"] == either.upload(tmp_path / "a", repo)["changes"]
    log = hub.log()
    upto = next(index for index, request in enumerate(log) if "/preupload/" in request["path"])
    assert {request["method"] for request in log[:upto]} == {"GET"}
    assert look(hub, repo, "/refs")["tags"] == [] and look(hub, f"{repo}-absent", "") is None


def test_branches_tags_and_visibility(hub: LoopbackHub, lfs: Client, repo: str, tmp_path: Path) -> None:
    first = lfs.upload(fill(tmp_path / "a", OLD), repo, private=True, tag="v1")
    assert look(hub, repo, "")["private"] is True
    second = lfs.upload(fill(tmp_path / "a", NEW), repo, revision="next", tag="v2", message="another")
    assert tree(hub, repo) == tree(hub, repo, "v1") == hashes(OLD)
    assert tree(hub, repo, "next") == tree(hub, repo, "v2") == hashes(NEW)
    assert look(hub, repo, "/commits/next")[0]["title"] == "another"
    assert lfs.upload(tmp_path / "a", repo, revision="next", tag="v2")["commit"] == second["commit"]
    short = first["commit"][:12]
    assert lfs.upload(tmp_path / "a", repo, tag="v1")["error"] == (
        f"tag v1 of {repo} names commit {short} already, and tags stay; choose another"
    )
    assert lfs.upload(tmp_path / "a", repo, private=False)["error"] == (
        f"{repo} is private and was to be public; change its settings, or leave --public out"
    )
    assert "v1 is a tag of" in lfs.upload(tmp_path / "a", repo, revision="v1")["error"]
    assert "names a commit of a branch" in lfs.upload(tmp_path / "a", repo, pull_request=True, tag="v3")["error"]
    assert tree(hub, repo) == hashes(OLD) and len(commits(hub, repo)) == 2, "all of this was found before sending"


@pytest.mark.parametrize("fault", ["none", "lost reply"])
def test_a_pull_request_is_opened_once(hub: LoopbackHub, lfs: Client, repo: str, tmp_path: Path, fault: str) -> None:
    lfs.upload(fill(tmp_path / "a", OLD), repo)
    if fault == "lost reply":
        hub.faults({"match": COMMIT, "action": "drop", "when": "reply"})
    answer = lfs.upload(fill(tmp_path / "a", NEW), repo, token="hf_bob", pull_request=True)
    assert answer["url"] == answer["pull_request"] == f"{hub.url}/{repo}/discussions/1"
    assert lfs.upload(tmp_path / "a", repo, token="hf_bob", pull_request=True)["commit"] == answer["commit"]
    assert look(hub, repo, "/discussions")["count"] == 1
    assert tree(hub, repo, "refs%2Fpr%2F1") == hashes(NEW) and tree(hub, repo) == hashes(OLD)


@pytest.mark.parametrize(
    "fault",
    [
        {"match": COMMIT, "action": "status", "status": 503},
        {"match": COMMIT, "action": "status", "status": 429, "headers": {"Retry-After": "1"}},
        {"match": COMMIT, "action": "status", "status": 500, "when": "reply"},
        {"match": COMMIT, "action": "drop"},
        {"match": "GET .*/refs", "action": "status", "status": 502},
        {"match": "POST .*/tag/", "action": "drop", "when": "reply"},
    ],
    ids=["503", "429", "500 after the commit", "disconnected", "502 at the start", "lost reply to the tag"],
)
def test_what_may_pass_is_tried_again(
    hub: LoopbackHub, lfs: Client, repo: str, tmp_path: Path, fault: dict[str, Any]
) -> None:
    said = len(lfs.errors.read_text())
    hub.faults(fault)
    answer = lfs.upload(fill(tmp_path / "a", OLD), repo, tag="v1")
    assert tree(hub, repo) == tree(hub, repo, "v1") == hashes(OLD)
    assert answer["commit"] == commits(hub, repo)[0] and len(commits(hub, repo)) == 2
    seconds = "1 s" if "headers" in fault else "0 s"
    assert f"trying again in {seconds}, attempt 2 of 5" in lfs.errors.read_text()[said:]


def test_patience_ends(hub: LoopbackHub, lfs: Client, repo: str, tmp_path: Path) -> None:
    hub.faults({"match": COMMIT, "action": "status", "status": 503, "times": 9, "message": "overloaded"})
    answer = lfs.upload(fill(tmp_path / "a", OLD), repo, patience={"attempts": 2})
    assert answer == {
        "kind": "PublishError",
        "error": f"{repo} could not be published in 2 attempts, the last of which ended with HTTP 503: overloaded; it is "
        "wholly as it was or wholly new: run the same command again, which sends only what is missing",
    }


REFUSALS = {
    "nobody": (
        {"token": None},
        None,
        "nobody is logged in to the Hub, so {repo} cannot be written; run `hf auth login`",
    ),
    "unknown": ({"token": "hf_unknown"}, None, "the Hub does not know the login that was used for {repo}; run"),
    "reader": ({"token": "hf_ro"}, None, "the login that was used may not write to {repo}; use a token with write"),
    "stranger": ({"token": "hf_bob"}, None, "the login that was used may not write to {repo}; use a token with write"),
    "gone": (
        {},
        404,
        "the Hub has no {repo} that this login may see; check the name, and that the token reaches alice",
    ),
    "conflict": ({}, 409, "{repo} is in conflict with something that exists there or is going on; wait a minute"),
    "large": ({}, 413, "the Hub finds what was sent to {repo} too large; split the weights with --max-shard-size"),
    "wrong": ({}, 400, "the Hub refuses what was sent to {repo} (HTTP 400: injected fault)"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_is_one_sentence_that_says_how_to_mend_it(
    hub: LoopbackHub, lfs: Client, repo: str, tmp_path: Path, case: str
) -> None:
    options, status, sentence = REFUSALS[case]
    if status:
        hub.faults({"match": COMMIT, "action": "status", "status": status})
    answer = lfs.upload(fill(tmp_path / "a", OLD), repo, **options)
    assert answer["kind"] == "PublishError" and answer["error"].startswith(sentence.format(repo=repo)), answer
    assert "\n" not in answer["error"]
    assert not any(token in answer["error"] + lfs.errors.read_text() for token in ("hf_unknown", "hf_ro", "hf_alice"))


def test_a_card_that_the_hub_cannot_read_is_refused_before_anything_is_sent(
    hub: LoopbackHub, lfs: Client, repo: str, tmp_path: Path
) -> None:
    answer = lfs.upload(fill(tmp_path / "a", {**OLD, "README.md": b"---\nlicense: [\n---\n"}), repo)
    assert answer["kind"] == "ValueError" and "Invalid metadata in README.md" in answer["error"]
    assert not weights(hub)


def test_a_folder_that_changes_while_it_is_sent_shows(hub: LoopbackHub, lfs: Client, repo: str, tmp_path: Path) -> None:
    hub.faults({"match": "POST .*/preupload/", "action": "delay", "seconds": 1})
    lfs.send(fill(tmp_path / "a", OLD), repo)
    while not any("/tree/" in request["path"] for request in hub.log(clear=False)):
        time.sleep(0.02)
    time.sleep(0.3)
    (tmp_path / "a" / "stale.py").write_bytes(b"changed = 1\n")
    answer = lfs.answer()
    assert "does not hold what was to be sent, for stale.py differ; leave the folder as it is" in answer["error"]


def test_a_push_by_somebody_else_is_not_overwritten(
    hub: LoopbackHub, lfs: Client, xet: Client, repo: str, tmp_path: Path
) -> None:
    """Two upload at once, and the one whose commit comes second is told so."""
    lfs.upload(fill(tmp_path / "a", OLD), repo)
    hub.log()
    hub.faults({"match": COMMIT, "action": "delay", "seconds": 1.5})
    lfs.send(fill(tmp_path / "a", NEW), repo)
    while not any("/preupload/" in request["path"] for request in hub.log(clear=False)):
        time.sleep(0.02)
    time.sleep(0.3)
    other = xet.upload(fill(tmp_path / "b", {**OLD, "LICENSE": b"another\n"}), repo)["commit"]
    assert lfs.answer() == {
        "kind": "PublishError",
        "error": f"somebody else has pushed to main of {repo} (now at {other[:12]}), so nothing is overwritten; look at "
        "it, and run the same command again to put yours on top",
    }
    assert 412 in [request["status"] for request in hub.log() if "/commit/" in request["path"]]
    assert commits(hub, repo)[0] == other
    assert lfs.upload(tmp_path / "a", repo)["commit"] == commits(hub, repo)[0] != other
    assert tree(hub, repo) == hashes(NEW)
