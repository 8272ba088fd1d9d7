"""The options of publishing, and its result."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KEYLESS = "keyless"
# Options for the Hub alone, and options that come too late for a folder that was built before.
OF_THE_HUB = ("private", "revision", "pull_request", "tag", "message")
OF_BUILDING = ("processor", "record", "other", "dtype", "max_shard_size")


@dataclass(frozen=True)
class PublishOptions:
    """Options of publishing a model.

    `processor` is the tokenizer or image processor of a model in memory, or a list of them; `record` the record of its
    training, or its run folder. `native` writes the stock transformers form, which needs no remote code; `other`, the
    Hub id or address of the model's other form, is linked. `dtype` and `max_shard_size` are those of the weights.
    `allow` are names and paths that may be published although they are of this machine. `sign` is the file of a private
    key that all files are signed with, or "keyless" for a login by Sigstore, whose public log then names you.
    On the Hub: `private` is the visibility of a new repository, and is checked against that of an old one; `revision` a
    branch, made from `main` where there is none; `pull_request` proposes the commit instead of making it, `tag` names
    it, `message` describes it. `step` is called with the name of each step before it.
    """

    processor: Any = None
    record: str | os.PathLike[str] | None = None
    native: bool = False
    other: str | None = None
    dtype: str | None = None
    max_shard_size: str | None = None
    allow: Sequence[str] = ()
    sign: str | os.PathLike[str] | None = None
    private: bool | None = None
    revision: str | None = None
    pull_request: bool = False
    tag: str | None = None
    message: str | None = None
    step: Callable[[str], None] = lambda what: None

    def check_unset(self, names: Sequence[str], reason: str) -> None:
        """Raise ValueError for the first of these options that is set; `reason` has a place for its name."""
        for name in names:
            # `private=False` asks for a public repository, `pull_request=False` for nothing.
            if getattr(self, name) not in ((None,) if name == "private" else (None, False)):
                raise ValueError(reason.format(name))


@dataclass(frozen=True)
class Published:
    """A published model: in `folder`, or on the Hub at `url` in `commit`.

    `identity` is that in the manifest, for `qkv verify --expect`; `files` are {name: bytes}; `as_built` says whether
    the folder was built before.
    """

    identity: str
    files: Mapping[str, int]
    as_built: bool = False
    folder: Path | None = None
    url: str | None = None
    commit: str | None = None
