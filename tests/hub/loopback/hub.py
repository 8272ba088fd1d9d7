"""The state of the server: who may do what, where things are, what is to go wrong, what was asked."""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from loopback.faults import Faults
from loopback.storage import Storage


@dataclass(frozen=True)
class User:
    """Whom a token stands for, and whether it may write."""

    name: str
    may_write: bool

    def owns(self, name: str) -> bool:
        """Return whether a repository of that name is this user's."""
        return name.partition("/")[0] == self.name


@dataclass
class Hub:
    """One Hub at two origins: `url` for users, `storage_url` for signed addresses, as the real one has its CDN.

    `page_size` is the length of a page of a tree.
    """

    storage: Storage
    users: dict[str, User]
    page_size: int = 1000
    url: str = ""
    storage_url: str = ""
    faults: Faults = field(default_factory=Faults)
    log: list[dict[str, Any]] = field(default_factory=list)

    def page(self, kind: str, name: str) -> str:
        """The address of a repository for people."""
        return f"{self.url}/{'' if kind == 'model' else kind + 's/'}{name}"

    def signed(self, origin: str, *words: str) -> str:
        """An address that works without a token."""
        path = "/".join(quote(word) for word in words)
        return f"{origin}/{path}?sig={self.storage.sign(*words)}"


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def in_an_hour() -> int:
    return int(time.time()) + 3600
