"""Permissions: tokens, private repositories, and `GET /api/whoami-v2`."""

from loopback.hub import Hub, User
from loopback.messages import HubError, Reply, Request
from loopback.repository import Repository
from loopback.routes import route

UNKNOWN_USER = "Invalid username or password."


def authenticate(request: Request) -> None:
    """Find the user of the token; a token nobody has is refused even where none is needed."""
    if request.token:
        request.user = request.hub.users.get(request.token)
        if request.user is None:
            raise HubError(401, "Invalid credentials in Authorization header")


def writer(request: Request) -> User:
    """The user, who may write somewhere."""
    if request.user is None:
        raise HubError(401, UNKNOWN_USER)
    if not request.user.may_write:
        raise HubError(403, "You don't have the rights: this token is read-only")
    return request.user


def lookup(hub: Hub, kind: str, name: str) -> Repository | None:
    row = hub.storage.row("select * from repos where kind=? and name=?", kind, name)
    return Repository(hub.storage, row) if row else None


def readable(request: Request, kind: str, name: str) -> Repository:
    """A repository this user may see; to others a private one does not exist."""
    repository = lookup(request.hub, kind, name)
    owner = request.user is not None and request.user.owns(name)
    if repository is None or (repository.private and not owner):
        unknown = request.user is None
        raise HubError(401, UNKNOWN_USER, "RepoNotFound") if unknown else missing_repository()
    return repository


def missing_repository() -> HubError:
    return HubError(404, "Repository not found", "RepoNotFound")


def writable(request: Request, kind: str, name: str) -> Repository:
    """A repository this user may change."""
    user = writer(request)
    repository = readable(request, kind, name)
    if not user.owns(name):
        raise HubError(403, "You don't have the required permissions to perform this action")
    return repository


def kind_of(request: Request) -> str:
    """Return the kind of repository that a path names; without one it is a model."""
    return request.words.get("kinds", "models").removesuffix("s")


def to_read(request: Request) -> Repository:
    return readable(request, kind_of(request), request.words["repo"])


def to_write(request: Request) -> Repository:
    return writable(request, kind_of(request), request.words["repo"])


def to_contribute(request: Request) -> Repository:
    """To change a repository one must own it; to propose a change, only see it."""
    writer(request)
    return to_read(request) if request.flag("create_pr") else to_write(request)


@route("GET", "/api/whoami-v2")
def whoami(request: Request) -> Reply:
    if request.user is None:
        raise HubError(401, UNKNOWN_USER)
    name = request.user.name
    token = {"displayName": "token", "role": "write" if request.user.may_write else "read"}
    person = {"type": "user", "id": name, "name": name, "fullname": name, "email": None}
    return Reply({**person, "orgs": [], "auth": {"type": "access_token", "accessToken": token}})
