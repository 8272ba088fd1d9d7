"""Send a package to the Hub in one commit: all of it or nothing, and never on top of an unseen push."""

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.hf_api import GitRefs, RepoFile
from huggingface_hub.utils.sha import git_hash

from qkv.scripts.publishing.hub.options import MAIN, Package, Target
from qkv.scripts.publishing.hub.repository import Repository
from qkv.scripts.publishing.hub.retry import Patience, PublishError, persistently

# The Hub's own file: it says what is stored as large files.
KEPT = ".gitattributes"
# Of so many discussions a pull request of ours is looked for.
RECENT = 50
State = Literal["new", "changed", "same", "deleted"]


@dataclass(frozen=True)
class Change:
    """A file of a commit: its state, and size and SHA-256 of the local file, or of the remote one that is deleted."""

    name: str
    state: State
    size: int
    sha256: str | None


@dataclass(frozen=True)
class Uploaded:
    """The state of the Hub, or after a dry run what would be sent: then `commit` is what was compared with.

    `commit` is None where there is no such repository yet.
    """

    url: str
    commit: str | None
    changes: tuple[Change, ...]
    pull_request: str | None = None


def send(package: Package, target: Target, *, dry_run: bool = False, patience: Patience | None = None) -> Uploaded:
    """Make the repository hold exactly the files of a package, by one commit; with `dry_run`, only compare.

    However it is interrupted, the repository holds the old files or the new ones, never a mixture; run again, it
    sends what is missing, and makes no second commit of the same files. A push by somebody else in the meantime is
    not overwritten. PublishError says in one sentence why the Hub did not take the files.
    """
    additions = {name: CommitOperationAdd(name, path) for name, path in package.files.items()}
    transfer = Transfer(Repository(HfApi(library_name="qkv"), target), additions)
    step: Callable[[], Uploaded] = transfer.preview if dry_run else transfer.run
    return persistently(step, target.repo, patience or Patience())


class Transfer:
    """An upload in steps. `run` reads the state of the Hub first, and so may be repeated after any failure."""

    def __init__(self, repository: Repository, additions: Mapping[str, CommitOperationAdd]) -> None:
        self.repository, self.additions = repository, additions
        self.api, self.target = repository.api, repository.target
        self.base: str | None = None
        self.changes: tuple[Change, ...] = ()

    def preview(self) -> Uploaded:
        """Return what `run` would do, without writing anything."""
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
        """Make the commit and its tag unless they exist."""
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
        """Send what the Hub lacks, and make one commit on top of `parent`."""
        sent = [change.name for change in changes if change.state in ("new", "changed")]
        # Copies, for the library marks operations as done, and a failed attempt is repeated.
        operations: list[CommitOperationAdd | CommitOperationDelete] = [copy(self.additions[name]) for name in sent]
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
        """Open a pull request, unless one with the same files is open, such as one whose reply was lost."""
        for discussion in islice(self.api.get_repo_discussions(self.target.repo), RECENT):
            if discussion.is_pull_request and discussion.status in ("open", "draft"):
                proposed = self.repository.head(str(discussion.git_reference))
                if not differs(self.compare(self.repository.tree(proposed))):
                    return Uploaded(discussion.url, proposed, self.changes, pull_request=discussion.url)
        made = self.commit(head, changes)
        self.check(made.oid)
        return Uploaded(str(made.pr_url), made.oid, self.changes, pull_request=made.pr_url)

    def check(self, commit: str) -> None:
        """Raise PublishError unless a commit holds exactly the package's files."""
        if wrong := [change.name for change in self.compare(self.repository.tree(commit)) if change.state != "same"]:
            raise PublishError(
                f"commit {commit[:12]} of {self.target.repo} does not hold what was to be sent, for {', '.join(wrong)} "
                "differ; leave the folder as it is while it is sent, and run the same command again"
            )

    def finish(self, commit: str, refs: GitRefs) -> Uploaded:
        """Tag the commit."""
        if self.target.tag and not self.repository.is_tagged(commit, refs):
            self.api.create_tag(self.target.repo, tag=self.target.tag, revision=commit)
        return Uploaded(self.repository.url(commit), commit, self.changes)

    def compare(self, remote: Mapping[str, RepoFile]) -> tuple[Change, ...]:
        """Compare remote files with those of the package."""
        changes = []
        for name, addition in self.additions.items():
            info = addition.upload_info
            changes.append(Change(name, compared(addition, remote.get(name)), info.size, info.sha256.hex()))
        for name in sorted(remote.keys() - self.additions.keys() - {KEPT}):
            large = remote[name].lfs
            changes.append(Change(name, "deleted", remote[name].size, large.sha256 if large else None))
        return tuple(changes)


def differs(changes: Iterable[Change]) -> bool:
    """Return whether any file differs."""
    return any(change.state != "same" for change in changes)


def compared(addition: CommitOperationAdd, remote: RepoFile | None) -> State:
    """Compare a local file with the Hub's, which has the SHA-256 of large files, and Git's hash of others."""
    if remote is None:
        return "new"
    if remote.lfs is not None:
        same = remote.lfs.sha256 == addition.upload_info.sha256.hex()
    else:
        same = remote.size == addition.upload_info.size
        same = same and remote.blob_id == git_hash(Path(str(addition.path_or_fileobj)).read_bytes())
    return "same" if same else "changed"
