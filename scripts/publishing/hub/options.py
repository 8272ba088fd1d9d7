"""The options of publishing, the package that is published, and where it goes; light enough for an upload alone."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

MAIN = "main"
# Options that only the Hub has, and those that come too late for a folder that was built before.
OF_THE_HUB = ("private", "revision", "pull_request", "tag", "message", "dry_run")
OF_BUILDING = ("processor", "record", "other", "dtype", "max_shard_size")


@dataclass(frozen=True)
class Target:
    """A repository of the Hub, and how to write to it.

    `revision` is a branch, made from `main` where there is none. `private` is the visibility of a new repository, and
    is checked against that of an old one. `pull_request` proposes the commit instead of making it; `tag` names it.
    """

    repo: str
    revision: str = MAIN
    private: bool | None = None
    pull_request: bool = False
    tag: str | None = None
    message: str = "Publish with qkv"

    def __post_init__(self) -> None:
        if self.pull_request and self.tag:
            raise ValueError(f"tag={self.tag!r} names a commit of a branch, not a pull request; tag after merging it")


@dataclass(frozen=True)
class Package:
    """A folder to publish, the identity in its manifest, and whether it was built before.

    `files` are {name: path} of what is in it, once `scan` has let them pass.
    """

    folder: Path
    identity: str
    as_built: bool = False
    files: Mapping[str, Path] = field(default_factory=dict)

    def scanned(self, files: Mapping[str, Path]) -> "Package":
        """Return the package with its files."""
        return replace(self, files=files)


@dataclass(frozen=True)
class PublishOptions:
    """Options of publishing a model.

    `processor` is the tokenizer or image processor of a model in memory, or a list of them; `record` the record of its
    training, or its run folder. `native` writes the stock transformers form, which needs no remote code; `other`, the
    Hub id or address of the model's other form, is linked. `dtype` and `max_shard_size` are those of the weights.
    `allow` are names and paths that may be published although they are of this machine.
    On the Hub: `private` is the visibility of a new repository, `revision` a branch; `pull_request` proposes the
    commit, `tag` names it, `message` describes it, `dry_run` only compares. `step` is called with what is done next.
    """

    processor: Any = None
    record: str | os.PathLike[str] | None = None
    native: bool = False
    other: str | None = None
    dtype: str | None = None
    max_shard_size: str | None = None
    allow: Sequence[str] = ()
    private: bool | None = None
    revision: str | None = None
    pull_request: bool = False
    tag: str | None = None
    message: str | None = None
    dry_run: bool = False
    step: Callable[[str], None] = lambda what: None

    def check_unset(self, names: Sequence[str], reason: str) -> None:
        """Raise ValueError for the first of these options that is given; `reason` has a place for its name."""
        for name in names:
            # `private=False` is a wish for a public repository, `pull_request=False` is no wish.
            if getattr(self, name) not in ((None,) if name == "private" else (None, False)):
                raise ValueError(reason.format(name))

    def target(self, repo: str) -> Target:
        """Return the repository with the options of the Hub."""
        named = ("private", "revision", "pull_request", "tag", "message")
        return Target(repo, **{name: getattr(self, name) for name in named if getattr(self, name) is not None})
