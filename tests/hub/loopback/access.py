"""Who may do what: tokens, private and gated repositories, and `GET /api/whoami-v2`."""

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
    """What kind of repository the path speaks of; a path without a word for it means models."""
    return request.words.get("kinds", "models").removesuffix("s")


def to_read(request: Request) -> Repository:
    return readable(request, kind_of(request), request.words["repo"])


def to_write(request: Request) -> Repository:
    return writable(request, kind_of(request), request.words["repo"])


def to_contribute(request: Request) -> Repository:
    """To change a repository one must own it; to propose a change or to work on one's proposal, only see it."""
    user, repository = writer(request), to_read(request)
    if request.flag("create_pr") or is_own_proposal(repository, request.words["revision"], user):
        return repository
    return to_write(request)


def is_own_proposal(repository: Repository, revision: str, user: User) -> bool:
    """Whether a revision is a pull request that this user has opened."""
    query = "select 1 from discussions where repo=? and author=? and 'refs/pr/' || num = ?"
    return repository.storage.row(query, repository.key, user.name, revision) is not None


def check_gate(request: Request, repository: Repository) -> None:
    """Refuse the files of a gated repository to whom access was not granted."""
    if not repository.gated or (request.user and request.user.owns(repository.name)):
        return
    query = "select 1 from access where repo=? and user=?"
    if request.user and repository.storage.row(query, repository.key, request.user.name):
        return
    status = 403 if request.user else 401
    raise HubError(status, f"Access to {repository.kind} {repository.name} is restricted", "GatedRepo")


@route("GET", "/api/whoami-v2")
def whoami(request: Request) -> Reply:
    if request.user is None:
        raise HubError(401, UNKNOWN_USER)
    name = request.user.name
    organisations = [{"name": word, "type": "org", "roleInOrg": "write"} for word in request.user.organisations]
    token = {"displayName": "token", "role": "write" if request.user.may_write else "read"}
    person = {"type": "user", "id": name, "name": name, "fullname": name, "email": None}
    return Reply({**person, "orgs": organisations, "auth": {"type": "access_token", "accessToken": token}})


@route("GET", "/api/{kinds}/{repo}/auth-check", "/api/{kinds}/{repo}/auth-check/{right}")
def auth_check(request: Request) -> Reply:
    repository = to_write(request) if request.words.get("right") == "write" else to_read(request)
    check_gate(request, repository)
    return Reply({})


@route("POST", "/api/{kinds}/{repo}/user-access-request/grant")
def grant(request: Request) -> Reply:
    repository = to_write(request)
    repository.storage.rows("insert or ignore into access values(?,?)", repository.key, request.json["user"])
    return Reply({})
