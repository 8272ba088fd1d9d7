"""What is known of a repository without asking the Hub; what it answers is in test_upload.py, through a real client."""

import pytest
from huggingface_hub import HfApi
from huggingface_hub.hf_api import GitRefInfo, GitRefs

from qkv.scripts.publishing.hub.options import Target
from qkv.scripts.publishing.hub.repository import Repository

API = HfApi(endpoint="https://hub.example")


def named(*names: str) -> list[GitRefInfo]:
    return [GitRefInfo(name=name, ref=name, target_commit="0" * 40) for name in names]


@pytest.mark.parametrize(
    ("revision", "found"), [("main", True), ("next", True), ("nex", False), ("v1", False), ("refs/pr/3", True)]
)
def test_a_branch_is_there_by_its_whole_name(revision: str, found: bool) -> None:
    refs = GitRefs(branches=named("main", "next"), converts=[], tags=named("v1"))
    assert Repository(API, Target("a/b", revision=revision)).has_branch(refs) is found


def test_a_commit_has_an_address() -> None:
    repository = Repository(API, Target("a/b"))
    assert repository.url(None) == "https://hub.example/a/b"
    assert repository.url("12ab") == "https://hub.example/a/b/tree/12ab"


def test_a_tag_is_not_asked_for_where_there_is_none() -> None:
    refs = GitRefs(branches=[], converts=[], tags=named("v1"))
    assert not Repository(API, Target("a/b")).is_tagged("12ab", refs)
    assert not Repository(API, Target("a/b", tag="v2")).is_tagged("12ab", refs)


def test_what_is_proposed_cannot_be_tagged() -> None:
    with pytest.raises(ValueError, match="tag=.v1. names a commit of a branch"):
        Target("a/b", pull_request=True, tag="v1")
