"""Repositories come, move and go: `/api/repos/…`, `…/settings`, and the lists `/api/models`, …."""

import re
from typing import Any

from loopback.access import kind_of, lookup, readable, to_write, writable, writer
from loopback.hub import now
from loopback.information import describe
from loopback.messages import HubError, Reply, Request
from loopback.repository import Repository
from loopback.routes import route

NAME = re.compile(r"(?!.*(--|\.\.))[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
LFS_KINDS = (
    "*.7z *.arrow *.bin *.bz2 *.ckpt *.ftz *.gz *.h5 *.joblib *.lfs.* *.mlmodel *.model *.msgpack *.npy *.npz *.onnx "
    "*.ot *.parquet *.pb *.pickle *.pkl *.pt *.pth *.rar *.safetensors *.tar.* *.tar *.tflite *.tgz *.wasm *.xz *.zip "
    "*.zst *tfevents*"
)
GIT_ATTRIBUTES = "".join(f"{kind} filter=lfs diff=lfs merge=lfs -text\n" for kind in LFS_KINDS.split()).encode()


def named(request: Request) -> tuple[str, str]:
    """Kind and full name of the repository that the body speaks of."""
    owner = request.json.get("organization") or writer(request).name
    return request.json.get("type") or "model", f"{owner}/{request.json['name']}"


@route("POST", "/api/repos/create")
def create(request: Request) -> Reply:
    """A new repository with one commit; one that exists is answered with its address, as `exist_ok` needs it."""
    user, (kind, name) = writer(request), named(request)
    refuse_bad_name(request.json["name"])
    if not user.owns(name):
        owner = name.partition("/")[0]
        raise HubError(403, f'You don\'t have the rights to create a {kind} under the namespace "{owner}"')
    url = request.hub.page(kind, name)
    if lookup(request.hub, kind, name):
        message = f"You already created this {kind} repo: {name}"
        raise HubError(409, message, body={"error": message, "url": url})
    private = request.json.get("visibility") == "private" or request.json.get("private") is True
    add(request, kind, name, private=private)
    return Reply({"url": url, "name": name, "id": name})


def refuse_bad_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise HubError(400, f"Invalid repo name: {name}")


def add(request: Request, kind: str, name: str, *, private: bool) -> None:
    row = (kind, name, int(private), None, now())
    request.hub.storage.rows("insert into repos(kind, name, private, gated, created) values(?,?,?,?,?)", *row)
    repository = lookup(request.hub, kind, name)
    assert repository is not None and request.user is not None
    tree = {".gitattributes": repository.add_file(GIT_ATTRIBUTES)}
    repository.add_commit("refs/heads/main", None, tree, ("initial commit", ""), request.user.name)


@route("DELETE", "/api/repos/delete")
def delete(request: Request) -> Reply:
    repository = writable(request, *named(request))
    repository.storage.rows("delete from repos where key=?", repository.key)
    return Reply({})


@route("POST", "/api/repos/move")
def move(request: Request) -> Reply:
    kind, target = request.json.get("type") or "model", request.json["toRepo"]
    repository = writable(request, kind, request.json["fromRepo"])
    refuse_bad_name(target.partition("/")[2])
    if not writer(request).owns(target):
        raise HubError(403, "You don't have the required permissions to perform this action")
    if lookup(request.hub, kind, target):
        raise HubError(409, f"There is a {kind} repo named {target} already")
    repository.storage.rows("update repos set name=? where key=?", target, repository.key)
    return Reply({})


@route("PUT", "/api/{kinds}/{repo}/settings")
def change_settings(request: Request) -> Reply:
    repository, wanted = to_write(request), request.json
    changes: dict[str, Any] = {}
    if "visibility" in wanted or "private" in wanted:
        changes["private"] = int(wanted.get("visibility") == "private" or wanted.get("private") is True)
    if "gated" in wanted:
        changes["gated"] = wanted["gated"] or None
    for column, value in changes.items():
        repository.storage.rows(f"update repos set {column}=? where key=?", value, repository.key)
    return Reply(wanted)


@route("GET", "/api/{kinds}")
def listing(request: Request) -> Reply:
    """The public repositories of a kind, by author and part of the name."""
    author, word = request.query.get("author", ""), request.query.get("search", "")
    query = "select * from repos where kind=? and private=0 order by name"
    rows = request.hub.storage.rows(query, kind_of(request))
    found = [Repository(request.hub.storage, row) for row in rows if row["name"].startswith(author)]
    return Reply([describe(request, repo, repo.resolve("main")) for repo in found if word in repo.name])


@route("GET", "/api/{kinds}/{repo}", "/api/{kinds}/{repo}/revision/{revision}")
def information(request: Request) -> Reply:
    repository = readable(request, kind_of(request), request.words["repo"])
    return Reply(describe(request, repository, repository.resolve(request.words.get("revision", "main"))))
