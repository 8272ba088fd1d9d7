"""Lists of files: `…/tree/{revision}[/{path}]` in pages."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from loopback.access import to_read
from loopback.messages import HubError, Reply, Request
from loopback.repository import Commit, Entry, Repository, Tree, folder_hash
from loopback.routes import route


@route("GET", "/api/{kinds}/{repo}/tree/{revision}", "/api/{kinds}/{repo}/tree/{revision}/{path}")
def tree(request: Request) -> Reply:
    repository, folder = to_read(request), request.words.get("path", "").strip("/")
    sha = repository.resolve(request.words["revision"])
    files = repository.tree(sha)
    last = repository.commit(sha) if request.flag("expand") else None
    paths = list(below(files, f"{folder}/" if folder else "", deep=request.flag("recursive")))
    if folder and not paths:
        raise HubError(404, f"{folder} does not exist", "EntryNotFound", headers={"X-Repo-Commit": sha})
    return page(request, [entry(repository, path, files.get(path), last) for path in paths])


def below(files: Tree, prefix: str, *, deep: bool) -> Iterator[str]:
    """The paths of what a folder holds, each sub-folder before its files."""
    seen = set()
    for path in sorted(files):
        if path.startswith(prefix):
            parts = path.removeprefix(prefix).split("/")
            for depth in range(1, len(parts) + 1 if deep else 2):
                shown = prefix + "/".join(parts[:depth])
                if shown not in seen:
                    seen.add(shown)
                    yield shown


def page(request: Request, rows: list[Any]) -> Reply:
    """Some of the rows, and where the next are."""
    limit = int(request.query.get("limit", request.hub.page_size))
    end = int(request.query.get("cursor", 0)) + limit
    headers = {}
    if end < len(rows):
        query = urlencode({**request.query, "limit": limit, "cursor": end})
        headers["Link"] = f'<{request.hub.url}{request.path}?{query}>; rel="next"'
    return Reply(rows[end - limit : end], headers=headers)


def entry(repository: Repository, path: str, file: Entry | None, last: Commit | None) -> dict[str, Any]:
    """One file, or a folder where there is none."""
    if file is None:
        return {"type": "directory", "oid": folder_hash(path), "size": 0, "path": path}
    answer: dict[str, Any] = {"type": "file", "oid": file.oid, "size": file.size, "path": path}
    if file.lfs:
        answer["lfs"] = {"oid": file.lfs, "size": file.size, "pointerSize": 134}
    if last:
        answer["lastCommit"] = {"id": last.sha, "title": last.title, "date": last.date}
    return answer
