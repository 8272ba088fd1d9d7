"""Uploads: `…/preupload/{revision}` says how to send each file, `…/commit/{revision}` takes all or nothing."""

import json
from base64 import b64decode
from fnmatch import fnmatch
from typing import Any

from loopback.access import to_contribute
from loopback.discussions import open_pull_request
from loopback.large_files import size_of
from loopback.messages import HubError, Reply, Request
from loopback.repository import Entry, Repository, Tree, git_hash
from loopback.routes import route

LARGE = 10 << 20


@route("POST", "/api/{kinds}/{repo}/preupload/{revision}")
def preupload(request: Request) -> Reply:
    """For each file: through LFS or in the commit itself, and what is there now."""
    repository = to_contribute(request)
    tree = repository.tree(repository.resolve(request.words["revision"]))
    lines = repository.text(tree, ".gitattributes").splitlines()
    large = [line.split()[0] for line in lines if "filter=lfs" in line]
    return Reply({"files": [advice(file, tree, large) for file in request.json["files"]]})


def advice(file: dict[str, Any], tree: Tree, large: list[str]) -> dict[str, Any]:
    path, present = file["path"], tree.get(file["path"])
    name, binary = path.rpartition("/")[2], b"\0" in b64decode(file["sample"])
    lfs = file["size"] > LARGE or binary or any(fnmatch(name, pattern) for pattern in large)
    oid = present and (present.lfs or present.oid)
    return {"path": path, "uploadMode": "lfs" if lfs else "regular", "oid": oid, "shouldIgnore": False}


@route("POST", "/api/{kinds}/{repo}/commit/{revision}")
def commit(request: Request) -> Reply:
    """One commit on a branch or a pull request, or a new pull request with `?create_pr=1`."""
    repository = to_contribute(request)
    header, *operations = (json.loads(line) for line in request.body.splitlines() if line.strip())
    words = header["value"]
    message = (words.get("summary", ""), words.get("description", ""))
    if not message[0]:
        raise HubError(400, "Commit summary can't be empty")
    parent = parent_of(request, repository, words.get("parentCommit"))
    tree = changed(repository, repository.tree(parent), operations)
    answer: dict[str, Any] = {"success": True, "hookOutput": ""}
    reference = target(request, repository)
    if request.flag("create_pr"):
        number = open_pull_request(request, repository, message[0], parent)
        reference = f"refs/pr/{number}"
        answer["pullRequestUrl"] = f"{request.hub.page(repository.kind, repository.name)}/discussions/{number}"
    assert request.user is not None
    sha = repository.add_commit(reference, parent, tree, message, request.user.name)
    page = request.hub.page(repository.kind, repository.name)
    return Reply({**answer, "commitUrl": f"{page}/commit/{sha}", "commitOid": sha})


def parent_of(request: Request, repository: Repository, wanted: str | None) -> str:
    """The commit to build upon; 412 if the branch has left the one that the client knows."""
    head = repository.resolve(request.words["revision"])
    if wanted and request.flag("create_pr"):
        return repository.resolve(wanted)
    if wanted and not head.startswith(wanted):
        raise HubError(412, "A commit has happened since. Please refresh and try again.")
    return head


def target(request: Request, repository: Repository) -> str:
    revision = request.words["revision"]
    reference = f"refs/heads/{revision}" if repository.reference(f"refs/heads/{revision}") else revision
    if not request.flag("create_pr") and not reference.startswith(("refs/heads/", "refs/pr/")):
        raise HubError(400, "Commits must target a branch or a PR")
    return reference


def changed(repository: Repository, tree: Tree, operations: list[dict[str, Any]]) -> Tree:
    """The tree after all operations; 400 for content that has not been uploaded."""
    missing: list[str] = []
    for operation in operations:
        key, value = operation["key"], operation["value"]
        if key == "deletedFile":
            remove(tree, value["path"])
            continue
        entry = small_file(repository, value) if key == "file" else large_file(repository, value)
        if entry is None:
            missing.append(value["path"])
        else:
            tree[value["path"]] = entry
    if missing:
        reason = "Your push was rejected because an LFS pointer pointed to a file that does not exist."
        raise HubError(400, f"{reason} Offending file: {', '.join(missing)}")
    return tree


def small_file(repository: Repository, value: dict[str, Any]) -> Entry:
    return repository.add_file(b64decode(value["content"], validate=True))


def large_file(repository: Repository, value: dict[str, Any]) -> Entry | None:
    """A pointer to what was uploaded before; None if it was not."""
    size = size_of(repository.storage, value["oid"])
    if size is None:
        return None
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{value['oid']}\nsize {size}\n"
    return Entry(git_hash(pointer.encode()), size, value["oid"])


def remove(tree: Tree, path: str) -> None:
    if path not in tree:
        raise HubError(404, f"A file with this name doesn't exist: {path}", "EntryNotFound")
    del tree[path]
