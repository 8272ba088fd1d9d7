"""Git LFS: `….git/info/lfs/objects/batch`, and uploads to signed addresses.

The content of a large file is named by its SHA-256, whichever way it came, through LFS or through Xet.
"""

from pathlib import Path
from typing import Any

from loopback.access import to_read, writer
from loopback.hub import Hub
from loopback.messages import HubError, Reply, Request, ranged
from loopback.routes import route
from loopback.storage import Storage


def size_of(storage: Storage, oid: str) -> int | None:
    """The size of a large file; None if its content is not here."""
    path = storage.file("lfs", oid)
    return path.stat().st_size if path.exists() else None


@route("POST", "/{repo}.git/info/lfs/objects/batch", "/{kinds}/{repo}.git/info/lfs/objects/batch")
def batch(request: Request) -> Reply:
    """Answer with an address for each file that is not here yet."""
    if request.json["operation"] == "upload":
        writer(request)
    to_read(request)
    objects = [action(request.hub, item) for item in request.json["objects"]]
    answer = {"transfer": "basic", "objects": objects}
    return Reply(answer, headers={"Content-Type": "application/vnd.git-lfs+json"})


def action(hub: Hub, item: dict[str, Any]) -> dict[str, Any]:
    answer = {"oid": item["oid"], "size": item["size"]}
    if size_of(hub.storage, item["oid"]) is not None:
        return answer
    return {**answer, "actions": {"upload": {"href": hub.signed(hub.storage_url, "lfs", item["oid"])}}}


def check_signature(request: Request, *words: str) -> None:
    if request.query.get("sig") != request.hub.storage.sign(*words):
        raise HubError(403, "bad signature")


@route("PUT", "/lfs/{oid}", storage=True)
def receive(request: Request) -> Reply:
    oid = request.words["oid"]
    check_signature(request, "lfs", oid)
    staged, found = request.hub.storage.stage(request.chunks)
    return keep(request.hub.storage, oid, staged, found)


def keep(storage: Storage, oid: str, staged: Path, found: str) -> Reply:
    """Take in a file whose content is what its name promises."""
    if found != oid:
        staged.unlink()
        raise HubError(400, f"sha256 mismatch: {found} came in place of {oid}")
    staged.rename(storage.file("lfs", oid))
    return Reply(headers={"ETag": f'"{oid}"'})


@route("GET", "/lfs/{oid}", storage=True)
def send(request: Request) -> Reply:
    oid = request.words["oid"]
    check_signature(request, "lfs", oid)
    return ranged(request, request.hub.storage.file("lfs", oid).read_bytes(), {"ETag": f'"{oid}"'})
