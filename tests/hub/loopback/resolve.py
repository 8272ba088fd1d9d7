"""Downloads: `GET` and `HEAD` of `/{repo}/resolve/{revision}/{path}`.

Like the real Hub, it answers a small file by a relative redirect to an address that never changes, and a large one by
a redirect to another origin: there clients stop on HEAD, where they find the hashes, and drop the token on GET.
"""

from urllib.parse import quote

from loopback.access import to_read
from loopback.messages import HubError, Reply, Request, ranged
from loopback.repository import Entry, Repository
from loopback.routes import route


@route("GET", "/{repo}/resolve/{revision}/{path}", "/{kinds}/{repo}/resolve/{revision}/{path}")
def resolve(request: Request) -> Reply:
    repository, sha, entry = find(request)
    if entry.lfs:
        return to_storage(request, sha, entry)
    parts = ("api", "resolve-cache", f"{repository.kind}s", *repository.name.split("/"), sha)
    location = f"/{'/'.join(quote(part, safe='') for part in parts)}/{quote(request.words['path'])}"
    return Reply(status=307, headers={"X-Repo-Commit": sha, "ETag": f'"{entry.oid}"', "Location": location})


@route("GET", "/api/resolve-cache/{kinds}/{repo}/{revision}/{path}")
def send(request: Request) -> Reply:
    repository, sha, entry = find(request)
    data = repository.storage.file("git", entry.oid).read_bytes()
    return ranged(request, data, {"X-Repo-Commit": sha, "ETag": f'"{entry.oid}"'})


def find(request: Request) -> tuple[Repository, str, Entry]:
    """The repository, the commit and the file that the path speaks of."""
    repository = to_read(request)
    sha = repository.resolve(request.words["revision"])
    entry = repository.tree(sha).get(request.words["path"])
    if entry is None:
        raise HubError(404, "Entry not found", "EntryNotFound", headers={"X-Repo-Commit": sha})
    return repository, sha, entry


def to_storage(request: Request, sha: str, entry: Entry) -> Reply:
    hub, name = request.hub, entry.lfs or ""
    etag = f'"{name}"'
    headers = {"X-Repo-Commit": sha, "ETag": etag, "X-Linked-Etag": etag, "X-Linked-Size": str(entry.size)}
    return Reply(status=302, headers={**headers, "Location": hub.signed(hub.storage_url, "lfs", name)})
