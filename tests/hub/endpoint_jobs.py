"""Use repositories of any Hub, each job one of its own: the client's side of `test_endpoint.py`."""

import tempfile
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd as Add
from huggingface_hub import CommitOperationDelete as Delete
from huggingface_hub import HfApi

from client import content, digest, main, refusal, repository

api = HfApi()
WEIGHTS = {name: content(name, 300_000) for name in ("old", "new")}
CONFIG = b'{"model_type": "qkv_encoder"}\n'


def fetched(name: str, revision: str) -> dict[str, str]:
    """{path: SHA-256 of what an empty cache gets}, but for the file that the Hub itself makes."""
    place = Path(api.snapshot_download(name, revision=revision, cache_dir=tempfile.mkdtemp()))
    files = [path for path in place.rglob("*") if path.is_file() and path.name != ".gitattributes"]
    return {path.relative_to(place).as_posix(): digest(path) for path in files}


def commits() -> Any:
    """One commit with everything, one that replaces, adds and deletes, and the same again."""
    with repository(api) as name:
        first = [Add("model.safetensors", WEIGHTS["old"]), Add("config.json", CONFIG), Add("a/b/old.py", b"x = 1\n")]
        before = api.create_commit(name, first, commit_message="first").oid
        change = {"model.safetensors": WEIGHTS["new"], "new.py": b"y = 2\n"}
        second = [*map(Add, change, change.values()), Delete("a/b/old.py")]
        after = api.create_commit(name, second, commit_message="second", parent_commit=before).oid
        again = api.create_commit(name, list(map(Add, change, change.values())), commit_message="again").oid
        history = [commit.title for commit in api.list_repo_commits(name)]
        states = {"before": fetched(name, before), "after": fetched(name, "main")}
        return {**states, "history": history, "shas": [before, after, again], "head": api.model_info(name).sha}


def conflicts() -> Any:
    with repository(api) as name:
        parent = api.model_info(name).sha
        api.create_commit(name, [Add("a.txt", b"1")], commit_message="1", parent_commit=parent)
        add = {"operations": [Add("a.txt", b"2")], "commit_message": "2"}
        stale = refusal(api.create_commit, name, parent_commit=parent, **add)
        card = [Add("README.md", b"---\ntags: [\n---\n")]
        return {
            "stale parent": stale,
            "not metadata": refusal(api.create_commit, name, card, commit_message="3"),
            "kept": digest(api.hf_hub_download(name, "a.txt")),
            "again": api.create_repo(name, exist_ok=True).repo_id == name,
        }


def names() -> Any:
    """Branches and tags name commits."""
    with repository(api) as name:
        first = api.create_commit(name, [Add("a.txt", b"1")], commit_message="1").oid
        api.create_branch(name, branch="side")
        api.create_tag(name, tag="v1")
        side = api.create_commit(name, [Add("a.txt", b"2")], commit_message="2", revision="side").oid
        refs = api.list_repo_refs(name)
        found = {ref.name: ref.target_commit for ref in [*refs.branches, *refs.tags]}
        contents = {revision: fetched(name, revision) for revision in ("main", "side", "v1", side)}
        return {"first": first, "side": side, "refs": found, "contents": contents}


def pull_requests() -> Any:
    """A change is proposed, and seen at its own revision only."""
    with repository(api) as name:
        api.create_commit(name, [Add("a.txt", b"1"), Add("b.txt", b"1")], commit_message="1")
        change = [Add("model.safetensors", WEIGHTS["old"]), Delete("b.txt")]
        proposed = api.create_commit(name, change, commit_message="2", create_pr=True)
        main, request = fetched(name, "main"), fetched(name, proposed.pr_revision)
        refs = [ref.ref for ref in api.list_repo_refs(name, include_pull_requests=True).pull_requests]
        (listed,) = api.get_repo_discussions(name)
        return {"main": main, "request": request, "refs": refs, "status": listed.status}


def trees() -> Any:
    """More files than a page of the loopback Hub holds."""
    with repository(api) as name:
        paths = [f"{folder}/{index}.txt" for folder in "ab" for index in range(6)]
        operations = [Add(path, path.encode()) for path in paths] + [Add("model.safetensors", WEIGHTS["old"])]
        api.create_commit(name, operations, commit_message="many")
        tree = list(api.list_repo_tree(name, recursive=True))
        info = {item.path: getattr(getattr(item, "lfs", None), "sha256", None) for item in tree}
        return {"paths": paths, "info": info}


def outsiders() -> Any:
    """Nobody else sees a private repository, and what is not there has its own exception."""
    with repository(api) as name:
        nobody, forged = HfApi(token=False), HfApi(token="hf_forged")
        return {
            "without a token": refusal(nobody.model_info, name),
            "forged token": refusal(forged.model_info, name),
            "no repository": refusal(api.model_info, f"{name}-2"),
            "no revision": refusal(api.model_info, name, revision="nowhere"),
            "no file": refusal(api.hf_hub_download, name, "nothing.txt"),
            "private": api.model_info(name).private,
        }


JOBS = {job.__name__: job for job in (commits, conflicts, names, pull_requests, trees, outsiders)}

if __name__ == "__main__":
    main(JOBS)
