"""The Hub's API, as far as the clients use it: repositories, files, commits, references, large files."""

import json
from base64 import b64decode
from fnmatch import fnmatch
from typing import Any

from loopback.hub import DATE, LFS_KINDS, HubError, Repository, User, is_large
from loopback.server import Reply, Request, route

UNKNOWN_USER = "Invalid username or password."
REPO = "/api/{kinds}/{repo}"


def user(request: Request) -> User | None:
    """The user of the token; a token nobody has is refused even where none is needed."""
    if request.token and request.token not in request.hub.users:
        raise HubError(401, "Invalid credentials in Authorization header")
    return request.hub.users.get(request.token)


def writer(request: Request) -> User:
    found = user(request)
    if found is None:
        raise HubError(401, UNKNOWN_USER)
    if not found.may_write:
        raise HubError(403, "You don't have the rights: this token is read-only")
    return found


def to_read(request: Request) -> Repository:
    """A repository this user may see; to others a private one does not exist."""
    kind = request.words.get("kinds", "models").removesuffix("s")
    found, who = request.hub.repositories.get((kind, request.words["repo"])), user(request)
    if found is None or (found.private and (who is None or not found.name.startswith(f"{who.name}/"))):
        raise HubError(401 if who is None else 404, "Repository not found", "RepoNotFound")
    return found


def to_write(request: Request, *, proposed: bool = False) -> Repository:
    """A repository this user may change; to propose a change, one must only see it."""
    who, found = writer(request), to_read(request)
    if not proposed and not found.name.startswith(f"{who.name}/"):
        raise HubError(403, "You don't have the required permissions to perform this action")
    return found


@route("POST", "/api/validate-yaml")
def validate(request: Request) -> Reply:
    return Reply({"errors": [], "warnings": []})


@route("POST", "/api/repos/create")
def create(request: Request) -> Reply:
    """A new repository; one that exists is answered with its address, as `exist_ok` needs it."""
    who, words = writer(request), request.json
    owner, kind = words.get("organization") or who.name, words.get("type") or "model"
    name = f"{owner}/{words['name']}"
    url = request.hub.page(kind, name)
    if owner != who.name:
        raise HubError(403, f'You don\'t have the rights to create a {kind} under the namespace "{owner}"')
    if (kind, name) in request.hub.repositories:
        raise HubError(409, f"You already created this {kind} repo: {name}", url=url)
    request.hub.create(kind, name, private=words.get("visibility") == "private" or words.get("private") is True)
    return Reply({"url": url, "name": name, "id": name})


@route("GET", REPO, REPO + "/revision/{revision}")
def information(request: Request) -> Reply:
    found, name = to_read(request), request.words["repo"]
    sha = found.resolve(request.words.get("revision", "main"))
    dates = {"createdAt": DATE, "lastModified": DATE}
    answer = {"_id": name, "id": name, "modelId": name, "author": name.partition("/")[0], "sha": sha, "tags": []}
    return Reply(
        {
            **answer,
            **dates,
            "private": found.private,
            "siblings": [{"rfilename": path} for path in sorted(found.tree(sha))],
        }
    )


@route("GET", REPO + "/refs")
def references(request: Request) -> Reply:
    found = to_read(request).refs.items()
    groups = {"branches": "refs/heads/", "tags": "refs/tags/", "converts": "refs/convert/"}
    rows = [{"name": ref.split("/", 2)[2], "ref": ref, "targetCommit": sha} for ref, sha in found]
    return Reply({group: [row for row in rows if row["ref"].startswith(prefix)] for group, prefix in groups.items()})


@route("POST", REPO + "/branch/{name}")
def create_branch(request: Request) -> Reply:
    return refer(request, f"refs/heads/{request.words['name']}", request.json.get("startingPoint") or "main")


@route("POST", REPO + "/tag/{revision}")
def create_tag(request: Request) -> Reply:
    return refer(request, f"refs/tags/{request.json['tag']}", request.words["revision"])


def refer(request: Request, name: str, revision: str) -> Reply:
    found = to_write(request)
    if name in found.refs:
        raise HubError(409, f"Reference already exists: {name}")
    found.refs[name] = found.resolve(revision)
    return Reply({}, 201)


@route("GET", REPO + "/tree/{revision}", REPO + "/tree/{revision}/{path}")
def tree(request: Request) -> Reply:
    """The files of a folder, with the folders in it, or with all below it where that is asked for."""
    found, folder = to_read(request), request.words.get("path", "").strip("/")
    sha = found.resolve(request.words["revision"])
    files, prefix = found.tree(sha), f"{folder}/" if folder else ""
    is_deep = request.query.get("recursive", "").lower() in ("1", "true")
    paths: set[str] = set()
    for parts in (path.removeprefix(prefix).split("/") for path in files if path.startswith(prefix)):
        paths |= {prefix + "/".join(parts[:depth]) for depth in range(1, len(parts) + 1 if is_deep else 2)}
    if folder and not paths:
        raise HubError(404, f"{folder} does not exist", "EntryNotFound")
    return Reply([entry(request, path, files.get(path), sha) for path in sorted(paths)])


def entry(request: Request, path: str, oid: str | None, sha: str) -> dict[str, Any]:
    """A file, or a folder where there is none."""
    if oid is None:
        return {"type": "directory", "oid": "0" * 40, "size": 0, "path": path}
    size = len(request.hub.contents[oid])
    answer = {"type": "file", "oid": oid[:40], "size": size, "path": path}
    answer["lastCommit"] = {"id": sha, "title": "commit", "date": DATE}
    return {**answer, "lfs": {"oid": oid, "size": size, "pointerSize": 134}} if is_large(oid) else answer


@route("POST", REPO + "/preupload/{revision}")
def preupload(request: Request) -> Reply:
    """For each file: as a large file or in the commit itself, and its present content."""
    found = to_write(request, proposed="create_pr" in request.query)
    there, answers = found.tree(request.words["revision"]), []
    for file in request.json["files"]:
        path = file["path"]
        is_binary = b"\0" in b64decode(file["sample"]) or any(fnmatch(path.rpartition("/")[2], x) for x in LFS_KINDS)
        mode = "lfs" if is_binary and file["size"] else "regular"
        answers.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": there.get(path)})
    return Reply({"files": answers})


@route("POST", REPO + "/commit/{revision}")
def commit(request: Request) -> Reply:
    """One commit on a branch, or on a new pull request; 412 if the branch has left the commit that the client knows."""
    is_proposed, revision = "create_pr" in request.query, request.words["revision"]
    found = to_write(request, proposed=is_proposed)
    header, *operations = (json.loads(line) for line in request.body.splitlines() if line.strip())
    head = found.resolve(revision)
    if not head.startswith(header["value"].get("parentCommit") or ""):
        raise HubError(412, "A commit has happened since. Please refresh and try again.")
    files = found.tree(head)
    for operation in operations:
        change(request, files, operation["key"], operation["value"])
    number = 1 + sum(name.startswith("refs/pr/") for name in found.refs)
    branch = revision if revision.startswith("refs/") else f"refs/heads/{revision}"
    sha = found.commit(f"refs/pr/{number}" if is_proposed else branch, head, header["value"]["summary"], files)
    page = request.hub.page(found.kind, found.name)
    proposal = {"pullRequestUrl": f"{page}/discussions/{number}"} if is_proposed else {}
    return Reply({"success": True, "commitUrl": f"{page}/commit/{sha}", "commitOid": sha, **proposal})


def change(request: Request, files: dict[str, str], key: str, value: dict[str, Any]) -> None:
    """Apply one operation; 400 for content that has not been uploaded."""
    if key == "deletedFile":
        del files[value["path"]]
    elif key == "file":
        files[value["path"]] = request.hub.keep(b64decode(value["content"], validate=True))
    elif value["oid"] in request.hub.contents:
        files[value["path"]] = value["oid"]
    else:
        raise HubError(400, f"an LFS pointer points to a file that does not exist: {value['path']}")


@route("POST", "/{repo}.git/info/lfs/objects/batch", "/{kinds}/{repo}.git/info/lfs/objects/batch")
def batch(request: Request) -> Reply:
    """An address for each large file that is not here yet."""
    to_read(request)
    objects = [{"oid": each["oid"], "size": each["size"]} for each in request.json["objects"]]
    for each in objects:
        if each["oid"] not in request.hub.contents:
            each["actions"] = {"upload": {"href": f"{request.hub.url}/lfs/{each['oid']}"}}
    return Reply({"transfer": "basic", "objects": objects}, headers={"Content-Type": "application/vnd.git-lfs+json"})


@route("PUT", "/lfs/{oid}")
def receive(request: Request) -> Reply:
    if request.hub.keep(request.body, large=True) != request.words["oid"]:
        raise HubError(400, "sha256 mismatch")
    return Reply()


@route("GET", "/{repo}/resolve/{revision}/{path}", "/{kinds}/{repo}/resolve/{revision}/{path}")
def resolve(request: Request) -> Reply:
    """A file, or the part of it that is asked for."""
    found, path = to_read(request), request.words["path"]
    sha = found.resolve(request.words["revision"])
    oid = found.tree(sha).get(path)
    if oid is None:
        error = HubError(404, "Entry not found", "EntryNotFound")
        error.headers["X-Repo-Commit"] = sha
        raise error
    headers = {"X-Repo-Commit": sha, "ETag": f'"{oid}"', "Accept-Ranges": "bytes"}
    data, asked = request.hub.contents[oid], request.headers.get("Range", "").removeprefix("bytes=").split("-")
    if len(asked) < 2 or request.method == "HEAD":
        return Reply(data, headers=headers)
    start, end = int(asked[0]), min(int(asked[1]) + 1, len(data)) if asked[1] else len(data)
    if start >= len(data):
        raise HubError(416, "Range not satisfiable")
    return Reply(data[start:end], 206, {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}", **headers})
