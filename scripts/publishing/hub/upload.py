"""How does a folder become a commit on the Hub? Wholly or not at all, and never on top of what nobody looked at."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.hf_api import GitRefs, RepoFile

from qkv.scripts.publishing.hub.repository import MAIN, Repository, Target
from qkv.scripts.publishing.hub.retry import Patience, PublishError, persistently

# The Hub's own file: it says what is stored as large files.
KEPT = ".gitattributes"
# Of so many discussions a pull request of ours is looked for.
RECENT = 50
State = Literal["new", "changed", "same", "deleted"]


@dataclass(frozen=True)
class Change:
    """What a commit does to one file; size and SHA-256 are those of the local file, or of the remote one it deletes."""

    name: str
    state: State
    size: int
    sha256: str | None


@dataclass(frozen=True)
class Uploaded:
    """What the Hub holds now, or after a dry run what it would be sent: then `commit` is what was compared with.

    `commit` is None where there is no such repository yet.
    """

    url: str
    commit: str | None
    changes: tuple[Change, ...]
    pull_request: str | None = None


@dataclass(frozen=True)
class LocalFile:
    """A file to be published, and the hash it had when it was looked at."""

    path: Path
    size: int
    sha256: str

    def against(self, remote: RepoFile | None) -> State:
        """What becomes of the Hub's file: it names large files by their SHA-256, others as Git does."""
        if remote is None:
            return "new"
        if remote.lfs is not None:
            same = remote.lfs.sha256 == self.sha256
        else:
            same = remote.size == self.size and remote.blob_id == git_hash(self.path)
        return "same" if same else "changed"


def upload(
    files: Mapping[str, Path], target: Target, *, dry_run: bool = False, patience: Patience | None = None
) -> Uploaded:
    """Make the repository hold exactly these files, by one commit or, with `dry_run`, only say what would change.

    However it is interrupted, the repository holds the old files or the new ones, never a mixture; to run it again
    sends what is missing, and makes no second commit of what is there. A push by somebody else in the meantime is not
    overwritten. PublishError says in one sentence why the Hub did not take the files.
    """
    repository = Repository(HfApi(library_name="qkv"), target)
    transfer = Transfer(repository, {name: local(path) for name, path in files.items()})
    step: Callable[[], Uploaded] = transfer.preview if dry_run else transfer.run
    return persistently(step, target.repo, patience or Patience())


class Transfer:
    """Files on their way to the Hub. `run` looks at the Hub first, and so may be repeated after any failure."""

    def __init__(self, repository: Repository, files: Mapping[str, LocalFile]) -> None:
        self.repository, self.files = repository, files
        self.api, self.target = repository.api, repository.target
        self.base: str | None = None
        self.changes: tuple[Change, ...] = ()

    def preview(self) -> Uploaded:
        """What `run` would do, found without writing anything."""
        there = self.repository
        if not there.exists():
            return Uploaded(there.url(None), None, self.compare({}))
        refs = there.refs()
        # A branch that does not exist yet will start where main is.
        head = there.head(self.target.revision if there.has_branch(refs) else MAIN)
        changes = self.compare(there.tree(head))
        there.is_tagged(None if differs(changes) else head, refs)
        return Uploaded(there.url(head), head, changes)

    def run(self) -> Uploaded:
        """Make the commit and its tag unless they are there."""
        refs = self.repository.prepare()
        head = self.repository.head(self.target.revision)
        changes = self.compare(self.repository.tree(head))
        if not self.changes:
            self.base, self.changes = head, changes
        if not differs(changes):
            return self.finish(head, refs)
        self.repository.is_tagged(None, refs)
        if self.target.pull_request:
            return self.propose(head, changes)
        if head != self.base:
            raise PublishError(
                f"somebody else has pushed to {self.target.revision} of {self.target.repo} (now at {head[:12]}), so "
                "nothing is overwritten; look at it, and run the same command again to put yours on top"
            )
        commit = self.commit(head, changes).oid
        self.check(commit)
        return self.finish(commit, refs)

    def commit(self, parent: str, changes: tuple[Change, ...]) -> CommitInfo:
        """Send what is not there, then put all of it into one commit on top of the one that was looked at."""
        sent = [change.name for change in changes if change.state in ("new", "changed")]
        operations: list[CommitOperationAdd | CommitOperationDelete] = [
            CommitOperationAdd(name, self.files[name].path) for name in sent
        ]
        operations += [CommitOperationDelete(change.name) for change in changes if change.state == "deleted"]
        return self.api.create_commit(
            self.target.repo,
            operations,
            commit_message=self.target.message,
            revision=self.target.revision,
            create_pr=self.target.pull_request,
            parent_commit=parent,
        )

    def propose(self, head: str, changes: tuple[Change, ...]) -> Uploaded:
        """Open a pull request, unless one that proposes the same is open: whose reply was lost, for instance."""
        for discussion in islice(self.api.get_repo_discussions(self.target.repo), RECENT):
            if discussion.is_pull_request and discussion.status in ("open", "draft"):
                proposed = self.repository.head(str(discussion.git_reference))
                if not differs(self.compare(self.repository.tree(proposed))):
                    return Uploaded(discussion.url, proposed, self.changes, pull_request=discussion.url)
        made = self.commit(head, changes)
        self.check(made.oid)
        return Uploaded(str(made.pr_url), made.oid, self.changes, pull_request=made.pr_url)

    def check(self, commit: str) -> None:
        """Raise PublishError unless a commit holds exactly our files."""
        if wrong := [change.name for change in self.compare(self.repository.tree(commit)) if change.state != "same"]:
            raise PublishError(
                f"commit {commit[:12]} of {self.target.repo} does not hold what was to be sent, for {', '.join(wrong)} "
                "differ; leave the folder as it is while it is sent, and run the same command again"
            )

    def finish(self, commit: str, refs: GitRefs) -> Uploaded:
        """Name the commit that holds our files."""
        if self.target.tag and not self.repository.is_tagged(commit, refs):
            self.api.create_tag(self.target.repo, tag=self.target.tag, revision=commit)
        return Uploaded(self.repository.url(commit), commit, self.changes)

    def compare(self, remote: Mapping[str, RepoFile]) -> tuple[Change, ...]:
        """What has to happen to remote files for them to be ours."""
        changes = [
            Change(name, file.against(remote.get(name)), file.size, file.sha256) for name, file in self.files.items()
        ]
        for name in sorted(remote.keys() - self.files.keys() - {KEPT}):
            large = remote[name].lfs
            changes.append(Change(name, "deleted", remote[name].size, large.sha256 if large else None))
        return tuple(changes)


def differs(changes: Iterable[Change]) -> bool:
    """Whether there is anything to do."""
    return any(change.state != "same" for change in changes)


def local(path: Path) -> LocalFile:
    """A file as it is now."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return LocalFile(path, file.tell(), digest)


def git_hash(path: Path) -> str:
    """The name that Git gives to the bytes of a file."""
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
