"""Uploads through Xet: `…/xet-write-token/…` and the content store that hf_xet then speaks to under `/xet`.

A file is put together as soon as a shard describes it and kept as a large file like any other, so that it is downloaded
as one. Paths that are not here (`/v2/…`, the search for chunks of others) answer 404, after which hf_xet takes the
older way.
"""

import time
from collections.abc import Iterator

from loopback.hub import HubError
from loopback.routes import REPO, to_write
from loopback.server import Reply, Request, route
from loopback.xet_format import Term, chunk, offsets, recipes

TOKEN = "may write"


@route("GET", REPO + "/xet-write-token/{revision}")
def write_token(request: Request) -> Reply:
    """Return the access token, in the body for hf_xet and in headers for huggingface_hub."""
    to_write(request, proposed="create_pr" in request.query)
    answer = {"casUrl": f"{request.hub.url}/xet", "accessToken": TOKEN, "exp": int(time.time()) + 3600}
    headers = {"X-Xet-Cas-Url": answer["casUrl"], "X-Xet-Access-Token": TOKEN}
    return Reply(answer, headers={**headers, "X-Xet-Token-Expiration": str(answer["exp"])})


def check_token(request: Request) -> None:
    if request.token != TOKEN:
        raise HubError(401, "this needs a Xet token to write")


@route("POST", "/xet/telemetry", "/xet/{version}/telemetry")
def telemetry(request: Request) -> Reply:
    return Reply({})


@route("POST", "/xet/{version}/xorbs/default/{name}")
def receive_xorb(request: Request) -> Reply:
    check_token(request)
    is_new = request.words["name"] not in request.hub.xorbs
    request.hub.xorbs[request.words["name"]] = request.body
    return Reply({"was_inserted": is_new})


@route("POST", "/xet/v1/shards")
def receive_shard(request: Request) -> Reply:
    check_token(request)
    for recipe in recipes(request.body):
        data = b"".join(part for term in recipe.terms for part in content(request.hub.xorbs, term))
        if request.hub.keep(data, large=True) != recipe.sha256:
            raise HubError(400, "sha256 mismatch")
    return Reply({"result": 1})


def content(xorbs: dict[str, bytes], term: Term) -> Iterator[bytes]:
    """The chunks of a term."""
    xorb = xorbs[term.xorb]
    for position in offsets(xorb)[term.start : term.end]:
        yield chunk(xorb, position)
