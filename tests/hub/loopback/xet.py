"""Xet over HTTP: `…/xet-{read,write}-token/…` and the content store that hf_xet then speaks to under `/xet`.

Paths that are not here (`/v2/…`, the search for chunks of others) answer 404, after which hf_xet takes the older way.
"""

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from loopback.access import to_contribute, to_read
from loopback.hub import in_an_hour
from loopback.messages import HubError, Reply, Request, ranged, requested
from loopback.routes import route
from loopback.storage import Storage
from loopback.xet_format import Recipe, Term, chunk, offsets, recipes


def terms_of(row: Any) -> list[Term]:
    return [Term(*values) for values in json.loads(row["terms"])]


def assemble(storage: Storage, oid: str) -> bytes:
    """The content of a file from its chunks."""
    row = storage.row("select * from xet_files where sha256=?", oid)
    data = b"".join(data for term in terms_of(row) for data in chunks(storage, term))
    if sha256(data).hexdigest() != oid:
        raise ValueError(f"the chunks of {oid} make something else")
    return data


def chunks(storage: Storage, term: Term) -> Iterator[bytes]:
    xorb = storage.file("xorbs", term.xorb).read_bytes()
    for position in offsets(xorb)[term.start : term.end]:
        yield chunk(xorb, position)


@route("GET", "/api/{kinds}/{repo}/xet-read-token/{revision}")
def read_token(request: Request) -> Reply:
    to_read(request)
    return token(request, "read")


@route("GET", "/api/{kinds}/{repo}/xet-write-token/{revision}")
def write_token(request: Request) -> Reply:
    to_contribute(request)
    return token(request, "write")


def token(request: Request, right: str) -> Reply:
    """Return the access token, in the body for hf_xet and in headers for huggingface_hub."""
    answer: dict[str, Any] = {
        "casUrl": f"{request.hub.url}/xet",
        "exp": in_an_hour(),
        "accessToken": request.hub.storage.sign(right),
    }
    headers = {"X-Xet-Cas-Url": answer["casUrl"], "X-Xet-Access-Token": answer["accessToken"]}
    return Reply(answer, headers={**headers, "X-Xet-Token-Expiration": str(answer["exp"])})


def check_token(request: Request, *rights: str) -> None:
    if request.token not in [request.hub.storage.sign(right) for right in rights]:
        raise HubError(401, f"this needs a Xet token to {' or '.join(rights)}")


@route("POST", "/xet/telemetry", "/xet/{version}/telemetry", storage=True)
def telemetry(request: Request) -> Reply:
    return Reply({})


@route("POST", "/xet/{version}/xorbs/default/{name}", storage=True)
def receive_xorb(request: Request) -> Reply:
    check_token(request, "write")
    storage, path = request.hub.storage, request.hub.storage.file("xorbs", request.words["name"])
    if path.exists():
        return Reply({"was_inserted": False})
    storage.write(path, request.chunks)
    return Reply({"was_inserted": True})


@route("POST", "/xet/v1/shards", storage=True)
def receive_shard(request: Request) -> Reply:
    check_token(request, "write")
    storage = request.hub.storage
    for recipe in recipes(request.body):
        for term in recipe.terms:
            if not storage.file("xorbs", term.xorb).exists():
                raise HubError(400, f"the shard speaks of xorb {term.xorb}, which is not here")
        add_recipe(storage, recipe)
    return Reply({"result": 1})


def add_recipe(storage: Storage, recipe: Recipe) -> None:
    terms = json.dumps([[term.xorb, term.start, term.end, term.size] for term in recipe.terms])
    row = (recipe.name, recipe.sha256, recipe.size, terms)
    storage.rows("insert or replace into xet_files values(?,?,?,?)", *row)


@route("GET", "/xet/v1/reconstructions/{name}", storage=True)
def reconstruction(request: Request) -> Reply:
    """Answer with the chunks of xorbs that make a file or a part of it."""
    check_token(request, "read", "write")
    row = request.hub.storage.row("select * from xet_files where hash=?", request.words["name"])
    if row is None:
        raise HubError(404, "no such file")
    skipped, terms = needed(terms_of(row), *(requested(request, row["size"]) or (0, row["size"])))
    fetch: dict[str, list[Any]] = {}
    for term in terms:
        fetch.setdefault(term.xorb, []).append(place(request, term))
    listed = [{"hash": term.xorb, "unpacked_length": term.size, "range": span(term)} for term in terms]
    return Reply({"offset_into_first_range": skipped, "terms": listed, "fetch_info": fetch})


def needed(terms: list[Term], start: int, end: int) -> tuple[int, list[Term]]:
    """The terms that hold a part of the file, and how much of the first comes before the part."""
    found: list[Term] = []
    skipped = position = 0
    for term in terms:
        if position + term.size > start and position < end:
            skipped = skipped if found else start - position
            found.append(term)
        position += term.size
    return skipped, found


def span(term: Term) -> dict[str, int]:
    return {"start": term.start, "end": term.end}


def place(request: Request, term: Term) -> dict[str, Any]:
    """Return the address of a term's chunks."""
    places = offsets(request.hub.storage.file("xorbs", term.xorb).read_bytes())
    inside = {"start": places[term.start], "end": places[term.end] - 1}
    address = request.hub.signed(request.hub.url, "xet", "xorb", term.xorb)
    return {"range": span(term), "url_range": inside, "url": address}


@route("GET", "/xet/xorb/{name}", storage=True)
def send_xorb(request: Request) -> Reply:
    name = request.words["name"]
    if request.query.get("sig") != request.hub.storage.sign("xet", "xorb", name):
        raise HubError(403, "bad signature")
    return ranged(request, request.hub.storage.file("xorbs", name).read_bytes(), {})
