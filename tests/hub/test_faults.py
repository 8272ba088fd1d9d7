"""A Hub that dies in the middle of an upload holds the old commit or the new one, and trying again makes it the new."""

import itertools
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from loopback.process import LoopbackHub
from uploads import NEW, OLD, Client, client, commits, fill, hashes, look, tree

Tree = dict[str, str] | None


@dataclass
class Scene:
    """A Hub, a client in LFS or in Xet mode, and a count that makes every upload another one."""

    hub: LoopbackHub
    client: Client
    place: Path
    mode: str
    count: Iterator[int] = field(default_factory=itertools.count)

    def versions(self) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """Old and new files, with weights that no Hub has seen."""
        number = next(self.count)

        def fresh(name: str, data: bytes) -> bytes:
            if name.endswith(".safetensors"):
                return random.Random(f"{self.mode} {number} {name}").randbytes(len(data))
            return data if name == "LICENSE" else data + f"\n{number}".encode()

        old, new = ({name: fresh(name, data) for name, data in files.items()} for files in (OLD, NEW))
        return old, new


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackHub]:
    with LoopbackHub(tmp_path_factory.mktemp("faults") / "hub") as hub:
        yield hub


@pytest.fixture(scope="module", params=["lfs", "xet"])
def scene(hub: LoopbackHub, tmp_path_factory: pytest.TempPathFactory, request: Any) -> Iterator[Scene]:
    place = tmp_path_factory.mktemp(request.param)
    with client(hub, place / "client", xet=request.param == "xet") as uploader:
        yield Scene(hub, uploader, place, request.param)


@dataclass
class Interrupted:
    """An upload in which the Hub died, or did not: what it held when it was back, and what came of it all."""

    died: bool
    found: Tree
    answer: dict[str, Any]


def interrupt(scene: Scene, repo: str, files: dict[str, bytes], **fault: Any) -> Interrupted:
    """Upload while the Hub dies of a fault, to be back at once."""
    hub, died, found = scene.hub, threading.Event(), []

    def keep() -> None:
        assert hub.wait() == 137
        died.set()
        hub.start()
        found.append(tree(hub, repo))

    keeper = threading.Thread(target=keep)
    hub.faults({"action": "exit", **fault})
    keeper.start()
    answer = scene.client.upload(fill(scene.place / "files", files), repo, tag="v2")
    happened = died.is_set()
    if not happened:  # there were fewer requests than the fault lets pass
        hub.faults({"action": "exit", "match": "/nobody/nothing"})
        with pytest.raises(OSError):
            look(hub, "nobody/nothing", "")
    keeper.join()
    return Interrupted(happened, found[0], answer)


def check(scene: Scene, *, fresh: bool, **fault: Any) -> bool:
    """Return whether the fault happened; if it did, assert old or new in between, and new, once, in the end."""
    old, new = scene.versions()
    repo = f"alice/{scene.mode}{next(scene.count)}"
    before: tuple[Tree, ...] = (None, {})
    if not fresh:
        scene.client.upload(fill(scene.place / "files", old), repo)
        before = (hashes(old),)
    result = interrupt(scene, repo, new, **fault)
    assert "error" not in result.answer, result.answer
    assert result.found in (*before, hashes(new)), "a mixture"
    assert tree(scene.hub, repo) == tree(scene.hub, repo, "v2") == hashes(new)
    made = commits(scene.hub, repo)
    assert made[0] == result.answer["commit"] and len(made) == (2 if fresh else 3), "one commit for each version"
    again = scene.client.upload(scene.place / "files", repo, tag="v2")
    assert again["commit"] == made[0] and commits(scene.hub, repo) == made
    return result.died


STAGES = {
    "when the repository is made": ("POST /api/repos/create", "reply"),
    "when the commit is in": ("POST .*/commit/main", "reply"),
}
ANY = "^[A-Z]+ /(?!__loopback__)"
WEIGHTS = {"lfs": "PUT /", "xet": "POST .*/xorbs/"}


@pytest.mark.parametrize("stage", STAGES)
def test_a_hub_that_dies_holds_all_or_nothing(scene: Scene, stage: str) -> None:
    match, when = STAGES[stage]
    assert check(scene, fresh="repository" in stage, match=match, when=when)


def test_a_hub_that_dies_within_the_weights_has_taken_nothing(scene: Scene) -> None:
    assert check(scene, fresh=False, match=WEIGHTS[scene.mode], when="body", bytes=100_000)


@pytest.mark.slow
@pytest.mark.parametrize("fresh", [True, False], ids=["new repository", "old repository"])
@pytest.mark.parametrize("when", ["start", "body", "reply", "sending"])
def test_no_request_is_a_bad_moment_to_die(scene: Scene, when: str, fresh: bool) -> None:
    """Every request of an upload, one after the other, until an upload meets no fault."""
    numbers = itertools.takewhile(
        lambda skip: check(scene, fresh=fresh, match=ANY, when=when, skip=skip), itertools.count()
    )
    assert len(list(numbers)) >= (4 if when == "body" else 8)
