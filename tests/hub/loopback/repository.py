"""A repository as Git has it: commits, the references that name them, and trees of entries."""

import json
import re
import time
from dataclasses import astuple, dataclass
from hashlib import sha1
from typing import Any

from loopback.hub import now
from loopback.messages import HubError
from loopback.storage import Storage


@dataclass(frozen=True)
class Entry:
    """A file in a tree: Git's name for its content, or for the pointer to its content of the SHA-256 `lfs`."""

    oid: str
    size: int
    lfs: str | None = None


Tree = dict[str, Entry]


@dataclass(frozen=True)
class Commit:
    """A tree with a history."""

    sha: str
    parent: str | None
    title: str
    message: str
    author: str
    date: str


class Repository:
    """One row of `repos` and what belongs to it."""

    def __init__(self, storage: Storage, row: Any) -> None:
        self.storage, self.key = storage, row["key"]
        self.kind, self.name = row["kind"], row["name"]
        self.private, self.created = bool(row["private"]), row["created"]

    def reference(self, name: str) -> str | None:
        """The commit that a full reference such as `refs/heads/main` names."""
        row = self.storage.row("select sha from refs where repo=? and name=?", self.key, name)
        return row["sha"] if row else None

    def references(self) -> dict[str, str]:
        rows = self.storage.rows("select name, sha from refs where repo=?", self.key)
        return {row["name"]: row["sha"] for row in rows}

    def point(self, name: str, sha: str) -> None:
        """Make a reference name that commit."""
        self.storage.rows("insert or replace into refs values(?,?,?)", self.key, name, sha)

    def resolve(self, revision: str) -> str:
        """The commit of a branch, a tag, a full reference or the start of a hash; 404 if there is none."""
        for name in (revision, f"refs/heads/{revision}", f"refs/tags/{revision}"):
            if sha := self.reference(name):
                return sha
        if re.fullmatch("[0-9a-f]{7,40}", revision):
            query = "select sha from commits where repo=? and sha like ?"
            rows = self.storage.rows(query, self.key, f"{revision}%")
            if len(rows) == 1:
                return str(rows[0]["sha"])
        raise HubError(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def commit(self, sha: str) -> Commit:
        row = self._commit_row(sha)
        return Commit(*(row[name] for name in ("sha", "parent", "title", "message", "author", "date")))

    def tree(self, sha: str) -> Tree:
        entries = json.loads(self._commit_row(sha)["tree"])
        return {path: Entry(*entry) for path, entry in entries.items()}

    def _commit_row(self, sha: str) -> Any:
        return self.storage.row("select * from commits where repo=? and sha=?", self.key, sha)

    def add_commit(self, reference: str, parent: str | None, tree: Tree, message: tuple[str, str], author: str) -> str:
        """Commit a tree and point the reference to it; the new hash."""
        entries = json.dumps({path: astuple(entry) for path, entry in tree.items()})
        sha = sha1(json.dumps([self.key, parent, entries, message, author, time.time_ns()]).encode()).hexdigest()
        row = (self.key, sha, parent, entries, *message, author, now())
        self.storage.rows("insert into commits values(?,?,?,?,?,?,?,?)", *row)
        self.point(reference, sha)
        return sha

    def add_file(self, data: bytes) -> Entry:
        """Keep a file that is small enough for Git."""
        entry = Entry(git_hash(data), len(data))
        if not self.storage.file("git", entry.oid).exists():
            self.storage.write(self.storage.file("git", entry.oid), [data])
        return entry

    def text(self, tree: Tree, path: str) -> str:
        """A small text file, empty if there is none."""
        entry = tree.get(path)
        return self.storage.file("git", entry.oid).read_text("utf-8") if entry and not entry.lfs else ""


def git_hash(data: bytes) -> str:
    """Return Git's name for a file of this content."""
    return sha1(b"blob %d\0" % len(data) + data).hexdigest()


def folder_hash(path: str) -> str:
    """A name for a folder: any will do, as long as it keeps."""
    return sha1(path.encode()).hexdigest()
