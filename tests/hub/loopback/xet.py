"""Uploads through Xet: `…/xet-write-token/…` and the content store that hf_xet then speaks to under `/xet`.

What a shard describes is put together at once and kept as a large file like any other, so that it is downloaded as one.
Paths that are not here (`/v2/…`, the search for chunks of others) answer 404, after which hf_xet takes the older way.
"""

from collections.abc import Iterator
from typing import Any

from loopback.access import to_contribute
from loopback.hub import in_an_hour
from loopback.large_files import keep
from loopback.messages import HubError, Reply, Request
from loopback.routes import route
from loopback.storage import Storage
from loopback.xet_format import Term, chunk, offsets, recipes


@route("GET", "/api/{kinds}/{repo}/xet-write-token/{revision}")
def write_token(request: Request) -> Reply:
    """Return the access token, in the body for hf_xet and in headers for huggingface_hub."""
    to_contribute(request)
    answer: dict[str, Any] = {
        "casUrl": f"{request.hub.url}/xet",
        "exp": in_an_hour(),
        "accessToken": request.hub.storage.sign("write"),
    }
    headers = {"X-Xet-Cas-Url": answer["casUrl"], "X-Xet-Access-Token": answer["accessToken"]}
    return Reply(answer, headers={**headers, "X-Xet-Token-Expiration": str(answer["exp"])})


def check_token(request: Request) -> None:
    if request.token != request.hub.storage.sign("write"):
        raise HubError(401, "this needs a Xet token to write")


@route("POST", "/xet/telemetry", "/xet/{version}/telemetry", storage=True)
def telemetry(request: Request) -> Reply:
    return Reply({})


@route("POST", "/xet/{version}/xorbs/default/{name}", storage=True)
def receive_xorb(request: Request) -> Reply:
    check_token(request)
    storage, path = request.hub.storage, request.hub.storage.file("xorbs", request.words["name"])
    if path.exists():
        return Reply({"was_inserted": False})
    storage.write(path, request.chunks)
    return Reply({"was_inserted": True})


@route("POST", "/xet/v1/shards", storage=True)
def receive_shard(request: Request) -> Reply:
    check_token(request)
    storage = request.hub.storage
    for recipe in recipes(request.body):
        staged, found = storage.stage(data for term in recipe.terms for data in content(storage, term))
        keep(storage, recipe.sha256, staged, found)
    return Reply({"result": 1})


def content(storage: Storage, term: Term) -> Iterator[bytes]:
    """The chunks that a term speaks of."""
    path = storage.file("xorbs", term.xorb)
    if not path.exists():
        raise HubError(400, f"the shard speaks of xorb {term.xorb}, which is not here")
    xorb = path.read_bytes()
    for position in offsets(xorb)[term.start : term.end]:
        yield chunk(xorb, position)
