"""Send a package to the Hub in one commit: all of it or nothing, and never on top of an unseen push."""

from collections.abc import Iterable, Mapping
from copy import copy
from itertools import islice
from pathlib import Path

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError
from huggingface_hub.hf_api import GitRefs, RepoFile
from huggingface_hub.utils.sha import git_hash

from qkv.scripts.publishing.hub.options import MAIN, Change, Package, Published, PublishOptions, State
from qkv.scripts.publishing.hub.retry import Patience, PublishError, persistently

# The Hub's own file: it says what is stored as large files.
KEPT = ".gitattributes"
# Of so many discussions a pull request of ours is looked for.
RECENT = 50


def send(package: Package, repo: str, options: PublishOptions, patience: Patience | None = None) -> Published:
    """Make the repository hold exactly the files of a package, by one commit; in a dry run, only compare.

    However it is interrupted, the repository holds the old files or the new ones, never a mixture; run again, it
    sends what is missing, and makes no second commit of the same files. A push by somebody else in the meantime is
    not overwritten. PublishError says in one sentence why the Hub did not take the files.
    """
    upload = Upload(package, Repository(HfApi(library_name="qkv"), repo, options))
    return persistently(upload.preview if options.dry_run else upload.run, repo, patience or Patience())


def remote_file(repo: str, name: str, revision: str) -> Path | None:
    """Return a file of a repository, None where none can be had; why not is told when something is sent."""
    try:
        return Path(HfApi(library_name="qkv").hf_hub_download(repo, name, revision=revision))
    except (HfHubHTTPError, OSError):
        return None


class Repository:
    """A repository on the Hub, asked anew at every call."""

    def __init__(self, api: HfApi, repo: str, options: PublishOptions) -> None:
        self.api, self.repo, self.options = api, repo, options

    def exists(self) -> bool:
        """Return whether the repository exists; PublishError if it is public and was to be private, or the reverse."""
        private = self.options.private
        try:
            info = self.api.repo_info(self.repo)
        except RepositoryNotFoundError:
            return False
        if private is not None and info.private != private:
            is_so, is_not = ("private", "public") if info.private else ("public", "private")
            raise PublishError(
                f"{self.repo} is {is_so} and was to be {is_not}; change its settings, or leave --{is_not} out"
            )
        return True

    def prepare(self) -> GitRefs:
        """Create the repository and the branch unless they exist, and return the branches and tags."""
        if not self.exists():
            self.api.create_repo(self.repo, private=self.options.private, exist_ok=True)
        refs = self.refs()
        if not self.has_branch(refs):
            self.api.create_branch(self.repo, branch=self.options.branch, exist_ok=True)
        return refs

    def refs(self) -> GitRefs:
        """Return branches and tags; PublishError where the branch has the name of a tag."""
        refs = self.api.list_repo_refs(self.repo)
        if self.options.branch in {tag.name for tag in refs.tags}:
            raise PublishError(f"{self.options.branch} is a tag of {self.repo}, and tags stay; name a branch")
        return refs

    def has_branch(self, refs: GitRefs) -> bool:
        """Return whether the branch exists; the branches of pull requests are made by the Hub alone."""
        branch = self.options.branch
        return branch.startswith("refs/pr/") or branch in {each.name for each in refs.branches}

    def head(self, revision: str) -> str:
        """Return the commit of a branch or tag."""
        return str(self.api.repo_info(self.repo, revision=revision).sha)

    def tree(self, commit: str) -> dict[str, RepoFile]:
        """Return {path: file} of a commit."""
        entries = self.api.list_repo_tree(self.repo, revision=commit, recursive=True)
        return {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}

    def is_tagged(self, commit: str | None, refs: GitRefs) -> bool:
        """Return whether the tag names this commit; PublishError if it names another."""
        tag = self.options.tag
        if tag is None or tag not in {each.name for each in refs.tags}:
            return False
        tagged = self.head(tag)
        if tagged != commit:
            raise PublishError(
                f"tag {tag} of {self.repo} names commit {tagged[:12]} already, and tags stay; choose another"
            )
        return True


class Upload:
    """An upload in steps. `run` reads the state of the Hub first, and so may be repeated after any failure."""

    def __init__(self, package: Package, repository: Repository) -> None:
        self.package, self.repository = package, repository
        self.api, self.repo, self.options = repository.api, repository.repo, repository.options
        self.additions = {name: CommitOperationAdd(name, path) for name, path in package.files.items()}
        self.base: str | None = None
        self.changes: tuple[Change, ...] = ()

    def preview(self) -> Published:
        """Return what `run` would do, without writing anything."""
        there = self.repository
        if not there.exists():
            return self.published(None, self.compare({}))
        refs = there.refs()
        # A branch that does not exist yet will start where main is.
        head = there.head(self.options.branch if there.has_branch(refs) else MAIN)
        changes = self.compare(there.tree(head))
        there.is_tagged(None if differs(changes) else head, refs)
        return self.published(head, changes)

    def run(self) -> Published:
        """Make the commit and its tag unless they exist."""
        refs = self.repository.prepare()
        head = self.repository.head(self.options.branch)
        changes = self.compare(self.repository.tree(head))
        if not self.changes:
            self.base, self.changes = head, changes
        if not differs(changes):
            return self.finish(head, refs)
        self.repository.is_tagged(None, refs)
        if self.options.pull_request:
            return self.propose(head, changes)
        if head != self.base:
            raise PublishError(
                f"somebody else has pushed to {self.options.branch} of {self.repo} (now at {head[:12]}), so "
                "nothing is overwritten; look at it, and run the same command again to put yours on top"
            )
        return self.finish(self.commit(head, changes).oid, refs)

    def commit(self, parent: str, changes: tuple[Change, ...]) -> CommitInfo:
        """Send what the Hub lacks in one commit on top of `parent`; PublishError unless it holds our files."""
        sent = [change.name for change in changes if change.state in ("new", "changed")]
        # Copies, for the library marks operations as done, and a failed attempt is repeated.
        operations: list[CommitOperationAdd | CommitOperationDelete] = [copy(self.additions[name]) for name in sent]
        operations += [CommitOperationDelete(change.name) for change in changes if change.state == "deleted"]
        made = self.api.create_commit(
            self.repo,
            operations,
            commit_message=self.options.message or "Publish with qkv",
            revision=self.options.branch,
            create_pr=self.options.pull_request,
            parent_commit=parent,
        )
        if wrong := [change.name for change in self.compare(self.repository.tree(made.oid)) if change.state != "same"]:
            raise PublishError(
                f"commit {made.oid[:12]} of {self.repo} does not hold what was to be sent, for {', '.join(wrong)} "
                "differ; leave the folder as it is while it is sent, and run the same command again"
            )
        return made

    def propose(self, head: str, changes: tuple[Change, ...]) -> Published:
        """Open a pull request, unless one with the same files is open, such as one whose reply was lost."""
        for discussion in islice(self.api.get_repo_discussions(self.repo), RECENT):
            if discussion.is_pull_request and discussion.status in ("open", "draft"):
                proposed = self.repository.head(str(discussion.git_reference))
                if not differs(self.compare(self.repository.tree(proposed))):
                    return self.published(proposed, self.changes, discussion.url)
        made = self.commit(head, changes)
        return self.published(made.oid, self.changes, made.pr_url)

    def finish(self, commit: str, refs: GitRefs) -> Published:
        """Tag the commit."""
        if self.options.tag and not self.repository.is_tagged(commit, refs):
            self.api.create_tag(self.repo, tag=self.options.tag, revision=commit)
        return self.published(commit, self.changes)

    def published(self, commit: str | None, changes: tuple[Change, ...], request: str | None = None) -> Published:
        """Return the result: at the address of its pull request, its commit, or the repository where there is none."""
        url = request or f"{self.api.endpoint}/{self.repo}" + (f"/tree/{commit}" if commit else "")
        package = self.package
        return Published(changes, package.identity, None, url, commit, request, as_built=package.as_built)

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
