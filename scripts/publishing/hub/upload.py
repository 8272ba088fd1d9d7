"""Send a package to the Hub in one commit, on top of the commit that it was compared with."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from httpx2 import HTTPError
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from huggingface_hub.errors import (
    HfHubHTTPError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils.sha import git_hash

from qkv.scripts.common.resources import table
from qkv.scripts.publishing.hub.options import MAIN, Change, Package, Published, PublishOptions, State

# Written by the Hub: the names of files that it stores as large ones.
KEPT = ".gitattributes"
SENTENCES = table(__file__)


class PublishError(RuntimeError):
    """The Hub did not take a model; one sentence says why, and how to mend it."""


def send(package: Package, repo: str, options: PublishOptions) -> Published:
    """Make a branch hold exactly the files of a package, by one commit; in a dry run, only compare.

    The same files again are no commit, and a push by somebody else in the meantime is not overwritten.
    """
    with explained(repo):
        return Upload(package, repo, options).run()


class Upload:
    """A package and the repository that it is sent to."""

    def __init__(self, package: Package, repo: str, options: PublishOptions) -> None:
        self.api, self.package, self.repo, self.options = HfApi(library_name="qkv"), package, repo, options
        self.additions = {name: CommitOperationAdd(name, path) for name, path in package.files.items()}

    def run(self) -> Published:
        """Compare, commit and tag."""
        options, branch = self.options, self.options.branch
        if not self.exists():
            if options.dry_run:
                return self.published(None, self.compare({}))
            self.api.create_repo(self.repo, private=options.private, exist_ok=True)
        refs = self.api.list_repo_refs(self.repo)
        tags, branches = ({each.name for each in group} for group in (refs.tags, refs.branches))
        is_new = branch not in branches and not branch.startswith("refs/pr/")
        head = self.head(MAIN if is_new else branch)  # a new branch starts at main
        entries = self.api.list_repo_tree(self.repo, revision=head, recursive=True)
        changes = self.compare({entry.path: entry for entry in entries if isinstance(entry, RepoFile)})
        differs = any(change.state != "same" for change in changes)
        tagged = self.head(options.tag) if options.tag in tags else None
        if branch in tags or (tagged and (differs or tagged != head)):
            raise PublishError(f"{options.tag or branch} is a tag of {self.repo}, and tags stay; choose another")
        if options.dry_run:
            return self.published(head, changes)
        if is_new:
            self.api.create_branch(self.repo, branch=branch, exist_ok=True)
        commit, request = self.commit(head, changes) if differs else (head, None)
        if options.tag and not tagged:
            self.api.create_tag(self.repo, tag=options.tag, revision=commit)
        return self.published(commit, changes, request)

    def exists(self) -> bool:
        """Return whether the repository exists; PublishError if it is public and was to be private, or the reverse."""
        try:
            info = self.api.repo_info(self.repo)
        except RepositoryNotFoundError:
            return False
        if self.options.private not in (None, info.private):
            is_so, is_not = ("private", "public") if info.private else ("public", "private")
            raise PublishError(
                f"{self.repo} is {is_so} and was to be {is_not}; change its settings, or leave --{is_not} out"
            )
        return True

    def head(self, revision: str | None) -> str:
        """Return the commit of a branch or tag."""
        return str(self.api.repo_info(self.repo, revision=revision).sha)

    def compare(self, remote: Mapping[str, RepoFile]) -> tuple[Change, ...]:
        """Compare local files with the Hub's, which has the SHA-256 of large files, and Git's hash of others."""
        changes = []
        for name, addition in self.additions.items():
            info, there = addition.upload_info, remote.get(name)
            ours = info.sha256.hex() if there and there.lfs else git_hash(self.package.files[name].read_bytes())
            theirs = (there.lfs.sha256 if there.lfs else there.blob_id) if there else None
            state: State = "new" if there is None else "same" if ours == theirs else "changed"
            changes.append(Change(name, state, info.size, info.sha256.hex()))
        stale = sorted(remote.keys() - self.additions.keys() - {KEPT})
        return (*changes, *(Change(name, "deleted", remote[name].size, None) for name in stale))

    def commit(self, parent: str, changes: tuple[Change, ...]) -> tuple[str, str | None]:
        """Send all changes in one commit on top of `parent`; return it and the address of its pull request."""
        operations: list[CommitOperationAdd | CommitOperationDelete] = [
            CommitOperationDelete(change.name) if change.state == "deleted" else self.additions[change.name]
            for change in changes
            if change.state != "same"
        ]
        made = self.api.create_commit(
            self.repo,
            operations,
            commit_message=self.options.message or "Publish with qkv",
            revision=self.options.branch,
            create_pr=self.options.pull_request,
            parent_commit=parent,
        )
        return made.oid, made.pr_url

    def published(self, commit: str | None, changes: tuple[Change, ...], request: str | None = None) -> Published:
        """Return the result: at the address of its pull request, its commit, or the repository where there is none."""
        url = request or f"{self.api.endpoint}/{self.repo}" + (f"/tree/{commit}" if commit else "")
        package = self.package
        return Published(changes, package.identity, None, url, commit, request, as_built=package.as_built)


@contextmanager
def explained(repo: str) -> Iterator[None]:
    """Raise PublishError, a sentence with a remedy, for a refusal of the Hub and for a lost connection."""
    try:
        yield
    except PublishError:
        raise
    except (HTTPError, OSError, RuntimeError) as error:
        answer = error if isinstance(error, HfHubHTTPError) else error.__cause__
        status = answer.response.status_code if isinstance(answer, HfHubHTTPError) else None
        is_nobody = isinstance(error, LocalTokenNotFoundError) or (status == 401 and not get_token())
        kind = "offline" if isinstance(error, OfflineModeIsEnabled) else "nobody" if is_nobody else status
        sentence = SENTENCES.get(kind, SENTENCES["other"]).format(repo=repo, owner=repo.partition("/")[0])
        raise PublishError(f"{sentence} ({' '.join(str(answer or error).split())[:200]})") from error
