"""Pull requests and discussions: `…/discussions`, `…/discussions/{number}`, its status, and its merge."""

from typing import Any

from loopback.access import to_read, to_write, writer
from loopback.hub import now
from loopback.messages import HubError, Reply, Request
from loopback.repository import Repository, Tree
from loopback.routes import route

MAIN = "refs/heads/main"


def open_discussion(request: Request, repository: Repository, words: tuple[str, str], fork: str | None) -> int:
    """A new discussion, or a pull request from the commit `fork`; its number."""
    last = repository.storage.row("select max(num) as last from discussions where repo=?", repository.key)
    number = 1 + ((last["last"] if last else None) or 0)
    base = f"refs/heads/{request.words.get('revision', 'main')}"
    status = "draft" if fork else "open"
    row = (repository.key, number, *words, writer(request).name, status, fork, base, now(), None)
    repository.storage.rows("insert into discussions values(?,?,?,?,?,?,?,?,?,?)", *row)
    if fork:
        repository.point(f"refs/pr/{number}", fork)
    return number


@route("POST", "/api/{kinds}/{repo}/discussions")
def create(request: Request) -> Reply:
    writer(request)
    repository = to_read(request)
    words = (request.json["title"], request.json.get("description", ""))
    fork = repository.resolve(MAIN) if request.json.get("pullRequest") else None
    return Reply({"num": open_discussion(request, repository, words, fork)})


@route("GET", "/api/{kinds}/{repo}/discussions")
def listing(request: Request) -> Reply:
    repository = to_read(request)
    rows = repository.storage.rows("select * from discussions where repo=? order by num desc", repository.key)
    return Reply({"count": len(rows), "start": 0, "discussions": [summary(repository, row) for row in rows]})


@route("GET", "/api/{kinds}/{repo}/discussions/{number}")
def details(request: Request) -> Reply:
    repository = to_read(request)
    row = found(request, repository)
    text = {"edited": False, "hidden": False, "latest": {"raw": row["description"]}}
    first = {"id": "0", "type": "comment", "createdAt": row["created"], "author": {"name": row["author"]}, "data": text}
    changes = {"base": row["base"], "mergeCommitId": row["merge_sha"]}
    answer = {**summary(repository, row), "events": [first], "changes": changes}
    return Reply({**answer, "filesWithConflicts": [], "diff": ""})


def found(request: Request, repository: Repository) -> Any:
    query = "select * from discussions where repo=? and num=?"
    row = repository.storage.row(query, repository.key, int(request.words["number"]))
    if row is None:
        raise HubError(404, "Discussion not found")
    return row


def summary(repository: Repository, row: Any) -> dict[str, Any]:
    names = {"num": row["num"], "title": row["title"], "author": {"name": row["author"]}, "createdAt": row["created"]}
    place = {"name": repository.name, "type": repository.kind}
    return {**names, "status": row["status"], "repo": place, "isPullRequest": row["fork"] is not None}


@route("POST", "/api/{kinds}/{repo}/discussions/{number}/status")
def change_status(request: Request) -> Reply:
    repository, user, status = to_read(request), writer(request), request.json["status"]
    row = found(request, repository)
    if not user.owns(repository.name) and user.name != row["author"]:
        raise HubError(403, "You don't have the required permissions to perform this action")
    update(repository, row, status=status)
    event = {"id": "1", "type": "status-change", "createdAt": now(), "author": {"name": user.name}}
    return Reply({"newStatus": {**event, "data": {"status": status}}})


def update(repository: Repository, row: Any, **changes: str) -> None:
    for column, value in changes.items():
        query = f"update discussions set {column}=? where repo=? and num=?"
        repository.storage.rows(query, value, repository.key, row["num"])


@route("POST", "/api/{kinds}/{repo}/discussions/{number}/merge")
def merge(request: Request) -> Reply:
    """Bring what the pull request changed to its branch; 409 where the branch has changed the same files since."""
    repository = to_write(request)
    row = found(request, repository)
    if row["fork"] is None or row["status"] not in ("draft", "open"):
        raise HubError(409, f"A {row['status']} discussion cannot be merged")
    head = repository.resolve(row["base"])
    fork, base, theirs = (repository.tree(sha) for sha in (row["fork"], head, request_head(repository, row)))
    message = (f"{row['title']} (#{row['num']})", "")
    sha = repository.add_commit(row["base"], head, merged(fork, base, theirs), message, writer(request).name)
    update(repository, row, status="merged", merge_sha=sha)
    return Reply({})


def request_head(repository: Repository, row: Any) -> str:
    return repository.resolve(f"refs/pr/{row['num']}")


def merged(fork: Tree, base: Tree, theirs: Tree) -> Tree:
    """The base with what became of the fork."""
    changed = {path for path in fork.keys() | theirs.keys() if fork.get(path) != theirs.get(path)}
    conflicts = [path for path in changed if base.get(path) not in (fork.get(path), theirs.get(path))]
    if conflicts:
        raise HubError(409, f"Conflicts in {', '.join(sorted(conflicts))}")
    kept = {path: entry for path, entry in base.items() if path not in changed}
    return kept | {path: entry for path, entry in theirs.items() if path in changed}
