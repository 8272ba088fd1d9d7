"""Repositories come and go: `/api/repos/create`, `/api/repos/delete` and `/api/models/…`."""

import re

from loopback.access import kind_of, lookup, readable, writable, writer
from loopback.hub import now
from loopback.information import describe
from loopback.messages import HubError, Reply, Request
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
    check_name(request.json["name"])
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


def check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise HubError(400, f"Invalid repo name: {name}")


def add(request: Request, kind: str, name: str, *, private: bool) -> None:
    row = (kind, name, int(private), now())
    request.hub.storage.rows("insert into repos(kind, name, private, created) values(?,?,?,?)", *row)
    repository = lookup(request.hub, kind, name)
    assert repository is not None and request.user is not None
    tree = {".gitattributes": repository.add_file(GIT_ATTRIBUTES)}
    repository.add_commit("refs/heads/main", None, tree, ("initial commit", ""), request.user.name)


@route("DELETE", "/api/repos/delete")
def delete(request: Request) -> Reply:
    repository = writable(request, *named(request))
    repository.storage.rows("delete from repos where key=?", repository.key)
    return Reply({})


@route("GET", "/api/{kinds}/{repo}", "/api/{kinds}/{repo}/revision/{revision}")
def information(request: Request) -> Reply:
    repository = readable(request, kind_of(request), request.words["repo"])
    return Reply(describe(request, repository, repository.resolve(request.words.get("revision", "main"))))
