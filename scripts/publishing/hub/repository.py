"""What does the Hub hold of a repository, as far as publishing has to know?"""

from dataclasses import dataclass

from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError
from huggingface_hub.hf_api import GitRefs, RepoFile

from qkv.scripts.publishing.hub.retry import PublishError

MAIN = "main"


@dataclass(frozen=True)
class Target:
    """Where a folder goes.

    `revision` is a branch, made from `main` where there is none. `private` says what a new repository is, and is held
    against what an old one is. `pull_request` proposes the commit instead of making it; `tag` names it.
    """

    repo: str
    revision: str = MAIN
    private: bool | None = None
    pull_request: bool = False
    tag: str | None = None
    message: str = "Publish with qkv"

    def __post_init__(self) -> None:
        if self.pull_request and self.tag:
            raise ValueError("a tag names a commit of a branch, and a pull request has none yet; tag after merging it")


class Repository:
    """A place on the Hub, asked anew at every call."""

    def __init__(self, api: HfApi, target: Target) -> None:
        self.api, self.target = api, target

    def exists(self) -> bool:
        """Whether there is a repository; PublishError if all can see one that was to be private, or the other way."""
        target = self.target
        try:
            found = self.api.repo_info(target.repo)
        except RepositoryNotFoundError:
            return False
        if target.private is not None and found.private != target.private:
            is_so, is_not = ("private", "public") if found.private else ("public", "private")
            raise PublishError(
                f"{target.repo} is {is_so} and was to be {is_not}; change its settings, or leave --{is_not} out"
            )
        return True

    def prepare(self) -> GitRefs:
        """See to it that repository and branch exist, and return what names commits there."""
        target = self.target
        if not self.exists():
            self.api.create_repo(target.repo, private=target.private, exist_ok=True)
        refs = self.refs()
        if not self.has_branch(refs):
            self.api.create_branch(target.repo, branch=target.revision, exist_ok=True)
        return refs

    def refs(self) -> GitRefs:
        """What names commits; PublishError where the name of the branch is that of a tag."""
        refs = self.api.list_repo_refs(self.target.repo)
        if self.target.revision in {tag.name for tag in refs.tags}:
            raise PublishError(f"{self.target.revision} is a tag of {self.target.repo}, and tags stay; name a branch")
        return refs

    def has_branch(self, refs: GitRefs) -> bool:
        """Whether the branch exists; pull requests, which can be written to as well, are made by the Hub alone."""
        revision = self.target.revision
        return revision.startswith("refs/pr/") or revision in {branch.name for branch in refs.branches}

    def head(self, revision: str) -> str:
        """The commit that a name stands for now."""
        return str(self.api.repo_info(self.target.repo, revision=revision).sha)

    def tree(self, commit: str) -> dict[str, RepoFile]:
        """The files of a commit."""
        entries = self.api.list_repo_tree(self.target.repo, revision=commit, recursive=True)
        return {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}

    def is_tagged(self, commit: str | None, refs: GitRefs) -> bool:
        """Whether the tag names this commit; PublishError if it names another."""
        tag = self.target.tag
        if tag is None or tag not in {found.name for found in refs.tags}:
            return False
        tagged = self.head(tag)
        if tagged != commit:
            raise PublishError(
                f"tag {tag} of {self.target.repo} names commit {tagged[:12]} already, and tags stay; choose another"
            )
        return True

    def url(self, commit: str | None) -> str:
        """Where people find a commit, or the repository that will be."""
        return f"{self.api.endpoint}/{self.target.repo}" + (f"/tree/{commit}" if commit else "")
