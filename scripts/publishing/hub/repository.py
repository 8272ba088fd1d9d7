"""Read the state of a repository on the Hub: its branches, tags and files."""

from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError
from huggingface_hub.hf_api import GitRefs, RepoFile

from qkv.scripts.publishing.hub.options import Target
from qkv.scripts.publishing.hub.retry import PublishError


class Repository:
    """A repository on the Hub, asked anew at every call."""

    def __init__(self, api: HfApi, target: Target) -> None:
        self.api, self.target = api, target

    def exists(self) -> bool:
        """Return whether the repository exists; PublishError if it is public and was to be private, or the reverse."""
        target = self.target
        try:
            info = self.api.repo_info(target.repo)
        except RepositoryNotFoundError:
            return False
        if target.private is not None and info.private != target.private:
            is_so, is_not = ("private", "public") if info.private else ("public", "private")
            raise PublishError(
                f"{target.repo} is {is_so} and was to be {is_not}; change its settings, or leave --{is_not} out"
            )
        return True

    def prepare(self) -> GitRefs:
        """Create the repository and the branch unless they exist, and return the branches and tags."""
        target = self.target
        if not self.exists():
            self.api.create_repo(target.repo, private=target.private, exist_ok=True)
        refs = self.refs()
        if not self.has_branch(refs):
            self.api.create_branch(target.repo, branch=target.revision, exist_ok=True)
        return refs

    def refs(self) -> GitRefs:
        """Return branches and tags; PublishError where the branch has the name of a tag."""
        refs = self.api.list_repo_refs(self.target.repo)
        if self.target.revision in {tag.name for tag in refs.tags}:
            raise PublishError(f"{self.target.revision} is a tag of {self.target.repo}, and tags stay; name a branch")
        return refs

    def has_branch(self, refs: GitRefs) -> bool:
        """Return whether the branch exists; the branches of pull requests are made by the Hub alone."""
        revision = self.target.revision
        return revision.startswith("refs/pr/") or revision in {branch.name for branch in refs.branches}

    def head(self, revision: str) -> str:
        """Return the commit of a branch or tag."""
        return str(self.api.repo_info(self.target.repo, revision=revision).sha)

    def tree(self, commit: str) -> dict[str, RepoFile]:
        """Return {path: file} of a commit."""
        entries = self.api.list_repo_tree(self.target.repo, revision=commit, recursive=True)
        return {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}

    def is_tagged(self, commit: str | None, refs: GitRefs) -> bool:
        """Return whether the tag names this commit; PublishError if it names another."""
        tag = self.target.tag
        if tag is None or tag not in {each.name for each in refs.tags}:
            return False
        tagged = self.head(tag)
        if tagged != commit:
            raise PublishError(
                f"tag {tag} of {self.target.repo} names commit {tagged[:12]} already, and tags stay; choose another"
            )
        return True

    def url(self, commit: str | None) -> str:
        """Return the address of a commit, or of the repository."""
        return f"{self.api.endpoint}/{self.target.repo}" + (f"/tree/{commit}" if commit else "")
