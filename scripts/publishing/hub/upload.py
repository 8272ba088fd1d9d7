"""Send files to the Hub in one commit: huggingface_hub compares, sends what is missing and tries again."""

from collections.abc import Mapping
from pathlib import Path

from httpx2 import HTTPError
from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import RepositoryNotFoundError

from qkv.scripts.publishing.hub.options import PublishOptions

# Written by the Hub: the names of files that it stores as large ones.
KEPT = ".gitattributes"


class PublishError(RuntimeError):
    """The Hub did not take a model; one sentence says why."""


def send(files: Mapping[str, Path], repo: str, options: PublishOptions) -> CommitInfo:
    """Make a branch hold exactly these files, by one commit, and tag it.

    The same files again are no commit, and a push by somebody else in the meantime is not overwritten.
    """
    try:
        return upload(HfApi(library_name="qkv"), files, repo, options)
    except PublishError:
        raise
    except (HTTPError, OSError, RuntimeError) as error:
        raise PublishError(
            f"{repo} could not be published, and is as it was or wholly new: {' '.join(str(error).split())}; mend that "
            "and run the same command again, which sends only the missing files"
        ) from error


def upload(api: HfApi, files: Mapping[str, Path], repo: str, options: PublishOptions) -> CommitInfo:
    """Make the repository and the branch where there are none, the commit and the tag."""
    if not exists(api, repo, private=options.private):
        api.create_repo(repo, private=options.private, exist_ok=True)
    refs, branch = api.list_repo_refs(repo), options.revision or "main"
    for name in {branch, options.tag} & {each.name for each in refs.tags}:
        raise PublishError(f"{name} is a tag of {repo}, and tags stay; choose another")
    if branch not in {each.name for each in refs.branches} and not branch.startswith("refs/pr/"):
        api.create_branch(repo, branch=branch, exist_ok=True)
    head = api.repo_info(repo, revision=branch).sha
    stale = sorted({*api.list_repo_files(repo, revision=head)} - files.keys() - {KEPT})
    made = api.create_commit(
        repo,
        [*(CommitOperationAdd(*item) for item in files.items()), *map(CommitOperationDelete, stale)],
        commit_message=options.message or "Publish with qkv",
        revision=branch,
        create_pr=options.pull_request,
        parent_commit=head,
    )
    if options.tag:
        api.create_tag(repo, tag=options.tag, revision=made.oid)
    return made


def exists(api: HfApi, repo: str, *, private: bool | None) -> bool:
    """Return whether a repository exists; PublishError if it is public and was to be private, or the reverse."""
    try:
        is_private = api.repo_info(repo).private
    except RepositoryNotFoundError:
        return False
    if private not in (None, is_private):
        is_so, is_not = ("private", "public") if is_private else ("public", "private")
        raise PublishError(f"{repo} is {is_so} and was to be {is_not}; change its settings, or leave --{is_not} out")
    return True
