"""Pull requests: a commit opens one, `GET …/discussions` lists them."""

from typing import Any

from loopback.access import to_read, writer
from loopback.hub import now
from loopback.messages import Reply, Request
from loopback.repository import Repository
from loopback.routes import route


def open_pull_request(request: Request, repository: Repository, title: str, fork: str) -> int:
    """Propose a change of the commit `fork`; the number of the pull request."""
    last = repository.storage.row("select max(num) as last from discussions where repo=?", repository.key)
    number = 1 + ((last["last"] if last else None) or 0)
    row = (repository.key, number, title, writer(request).name, now())
    repository.storage.rows("insert into discussions values(?,?,?,?,?)", *row)
    repository.point(f"refs/pr/{number}", fork)
    return number


@route("GET", "/api/{kinds}/{repo}/discussions")
def listing(request: Request) -> Reply:
    repository = to_read(request)
    rows = repository.storage.rows("select * from discussions where repo=? order by num desc", repository.key)
    return Reply({"count": len(rows), "start": 0, "discussions": [summary(repository, row) for row in rows]})


def summary(repository: Repository, row: Any) -> dict[str, Any]:
    names = {"num": row["num"], "title": row["title"], "author": {"name": row["author"]}, "createdAt": row["created"]}
    place = {"name": repository.name, "type": repository.kind}
    return {**names, "status": "open", "repo": place, "isPullRequest": True}
