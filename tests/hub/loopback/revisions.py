"""Names of commits: `…/refs`, `…/branch/…`, `…/tag/…` and the history `…/commits/…`."""

from collections.abc import Iterator
from typing import Any

from loopback.access import to_read, to_write
from loopback.messages import HubError, Reply, Request
from loopback.repository import Repository
from loopback.routes import route

BRANCH, TAG, PULL_REQUEST = "refs/heads/", "refs/tags/", "refs/pr/"


@route("GET", "/api/{kinds}/{repo}/refs")
def references(request: Request) -> Reply:
    repository = to_read(request)
    answer = {"branches": named(repository, BRANCH), "tags": named(repository, TAG), "converts": []}
    if request.flag("include_prs"):
        answer["pullRequests"] = named(repository, PULL_REQUEST)
    return Reply(answer)


def named(repository: Repository, prefix: str) -> list[dict[str, str]]:
    found = {name: sha for name, sha in repository.references().items() if name.startswith(prefix)}
    return [{"name": name.removeprefix(prefix), "ref": name, "targetCommit": sha} for name, sha in found.items()]


@route("GET", "/api/{kinds}/{repo}/commits/{revision}")
def history(request: Request) -> Reply:
    repository = to_read(request)
    return Reply(list(ancestors(repository, repository.resolve(request.words["revision"]))))


def ancestors(repository: Repository, sha: str | None) -> Iterator[dict[str, Any]]:
    """A commit, its parent, and so on, as the API tells them."""
    while sha:
        commit = repository.commit(sha)
        words = {"id": sha, "title": commit.title, "message": commit.message, "date": commit.date}
        yield {**words, "authors": [{"user": commit.author}]}
        sha = commit.parent


@route("POST", "/api/{kinds}/{repo}/branch/{branch}")
def create_branch(request: Request) -> Reply:
    start = request.json.get("startingPoint") or "main"
    return name_commit(to_write(request), BRANCH + request.words["branch"], start)


@route("POST", "/api/{kinds}/{repo}/tag/{revision}")
def create_tag(request: Request) -> Reply:
    return name_commit(to_write(request), TAG + request.json["tag"], request.words["revision"])


def name_commit(repository: Repository, name: str, revision: str) -> Reply:
    if repository.reference(name):
        raise HubError(409, f"Reference already exists: {name}")
    repository.point(name, repository.resolve(revision))
    return Reply({}, 201)
