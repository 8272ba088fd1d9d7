"""The state of the Hub: repositories as Git has them, their contents, and users by their tokens."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from hashlib import sha1, sha256
from pathlib import Path
from typing import Any

# Binary files, which are stored as large ones whatever their size.
LFS_KINDS = "*.arrow *.bin *.model *.npy *.npz *.parquet *.pkl *.pt *.pth *.safetensors *.zip *tfevents*".split()
GIT_ATTRIBUTES = "".join(f"{kind} filter=lfs diff=lfs merge=lfs -text\n" for kind in LFS_KINDS).encode()
DATE = "2026-01-01T00:00:00.000Z"


class HubError(Exception):
    """A refusal; its `code` is how the clients tell a missing repository from a missing file."""

    def __init__(self, status: int, message: str, code: str = "", **body: Any) -> None:
        super().__init__(message)
        self.status, self.body = status, {"error": message, **body}
        self.headers = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {})}


@dataclass(frozen=True)
class User:
    """The person of a token, and whether it may write."""

    name: str
    may_write: bool = True


@dataclass(frozen=True)
class Commit:
    """{path: name of its content} with a history."""

    sha: str
    parent: str | None
    title: str
    tree: dict[str, str]


@dataclass
class Repository:
    """Commits, and the full references that name them."""

    kind: str
    name: str
    private: bool
    commits: dict[str, Commit] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)

    def resolve(self, revision: str) -> str:
        """The commit of a branch, a tag, a full reference or a hash; 404 if there is none."""
        for name in (revision, f"refs/heads/{revision}", f"refs/tags/{revision}"):
            if name in self.refs:
                return self.refs[name]
        found = [sha for sha in self.commits if re.fullmatch("[0-9a-f]{7,40}", revision) and sha.startswith(revision)]
        if len(found) != 1:
            raise HubError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return found[0]

    def tree(self, revision: str = "main") -> dict[str, str]:
        return dict(self.commits[self.resolve(revision)].tree)

    def history(self, revision: str = "main") -> list[Commit]:
        """The commits of a branch, newest first."""
        found, sha = [], self.resolve(revision)
        while sha:
            found.append(self.commits[sha])
            sha = found[-1].parent
        return found

    def commit(self, reference: str, parent: str | None, title: str, tree: dict[str, str]) -> str:
        sha = sha1(repr((self.name, len(self.commits), parent, title, sorted(tree.items()))).encode()).hexdigest()
        self.commits[sha] = Commit(sha, parent, title, tree)
        self.refs[reference] = sha
        return sha


@dataclass
class Hub:
    """A Hub at `url`.

    Contents are named as the clients expect it: small ones by Git's hash, large ones by their SHA-256. `before` is called
    with the `METHOD /path` of each request, and may raise HubError; `log` has those of all.
    """

    users: dict[str, User]
    repositories: dict[tuple[str, str], Repository] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    before: Callable[[str], object] = len
    log: list[str] = field(default_factory=list)
    url: str = ""

    def page(self, kind: str, name: str) -> str:
        """The address of a repository for people."""
        return f"{self.url}/{'' if kind == 'model' else kind + 's/'}{name}"

    def keep(self, data: bytes, *, large: bool = False) -> str:
        """Keep a content under its name."""
        name = sha256(data).hexdigest() if large else sha1(b"blob %d\0" % len(data) + data).hexdigest()
        self.contents[name] = data
        return name

    def create(self, kind: str, name: str, *, private: bool) -> Repository:
        repository = self.repositories[kind, name] = Repository(kind, name, private)
        repository.commit("refs/heads/main", None, "initial commit", {".gitattributes": self.keep(GIT_ATTRIBUTES)})
        return repository

    def put(self, name: str, folder: Path, tag: str = "") -> str:
        """Make a model hold the files of a folder, by one commit on main."""
        found = self.repositories.get(("model", name)) or self.create("model", name, private=False)
        paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
        large = [name for name in paths if any(fnmatch(name, kind) for kind in LFS_KINDS)]
        tree = {name: self.keep(path.read_bytes(), large=name in large) for name, path in paths.items()}
        sha = found.commit("refs/heads/main", found.resolve("main"), "put", tree)
        found.refs |= {f"refs/tags/{tag}": sha} if tag else {}
        return sha

    def model(self, name: str) -> Repository:
        return self.repositories["model", name]

    def files(self, name: str, revision: str = "main") -> dict[str, bytes]:
        """{path: content} of a model, without the Hub's own file."""
        tree = self.model(name).tree(revision)
        return {path: self.contents[oid] for path, oid in tree.items() if path != ".gitattributes"}


@contextmanager
def failing(hub: Hub, pattern: str, status: int) -> Iterator[None]:
    """Refuse the requests whose `METHOD /path` matches."""

    def refuse(line: str) -> None:
        if re.search(pattern, line):
            raise HubError(status, "not now")

    hub.before = refuse
    try:
        yield
    finally:
        hub.before = len


def is_large(oid: str) -> bool:
    """Return whether a content is named by its SHA-256."""
    return len(oid) == 64
