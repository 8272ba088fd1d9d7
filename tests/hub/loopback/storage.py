"""Storage: SQLite for what changes, files named after their content for what does not."""

import hmac
import os
import secrets
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from threading import RLock
from typing import Any

SCHEMA = """
create table if not exists repos(
    key integer primary key, kind text, name text, private int, created text, unique(kind, name));
create table if not exists refs(
    repo int references repos on delete cascade, name text, sha text, primary key(repo, name));
create table if not exists commits(
    repo int references repos on delete cascade, sha text, parent text, tree text, title text, message text,
    author text, date text, primary key(repo, sha));
create table if not exists discussions(
    repo int references repos on delete cascade, num int, title text, author text, created text, primary key(repo, num));
"""
FOLDERS = ("git", "lfs", "xorbs", "staging")


class Storage:
    """A folder that survives the death of the server at any point: transactions and renames, whole or not at all.

    Nothing is forced to the disk: a process that dies, other than a machine, loses nothing it has written.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in FOLDERS:
            (root / name).mkdir(parents=True, exist_ok=True)
        self.lock = RLock()
        self._database = sqlite3.connect(root / "hub.db", check_same_thread=False, isolation_level=None)
        self._database.row_factory = sqlite3.Row
        self._database.executescript(f"pragma journal_mode=wal; pragma synchronous=off; {SCHEMA}")
        self._database.execute("pragma foreign_keys=on")
        if not (root / "key").exists():
            self.write(root / "key", [secrets.token_bytes(32)])
        self._key = (root / "key").read_bytes()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of a request's changes, or none."""
        with self.lock:
            self._database.execute("begin immediate")
            try:
                yield
                self._database.execute("commit")
            except BaseException:
                self._database.execute("rollback")
                raise

    def rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        with self.lock:
            return self._database.execute(query, values).fetchall()

    def row(self, query: str, *values: Any) -> sqlite3.Row | None:
        return next(iter(self.rows(query, *values)), None)

    def file(self, folder: str, name: str) -> Path:
        """Return the path of the content of that name."""
        return self.root / folder / name

    def write(self, target: Path, chunks: Iterable[bytes]) -> None:
        """Write a file that appears whole."""
        staged, _ = self.stage(chunks)
        staged.rename(target)

    def stage(self, chunks: Iterable[bytes]) -> tuple[Path, str]:
        """Write a file of no name yet; its path and its SHA-256."""
        digest = sha256()
        descriptor, path = tempfile.mkstemp(dir=self.root / "staging")
        with os.fdopen(descriptor, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
                digest.update(chunk)
        return Path(path), digest.hexdigest()

    def sign(self, *words: str) -> str:
        """Return the signature of an address."""
        return hmac.new(self._key, "|".join(words).encode(), "sha256").hexdigest()[:32]
