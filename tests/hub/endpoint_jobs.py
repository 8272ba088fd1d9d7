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


def folder(files: dict[str, bytes]) -> Path:
    place = Path(tempfile.mkdtemp())
    for name, data in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)
    return place


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


def folders() -> Any:
    """A folder goes up, and a smaller one in its place."""
    with repository(api) as name:
        large = folder({"model-1.safetensors": WEIGHTS["old"], "model-2.safetensors": WEIGHTS["new"], "a.py": b"a\n"})
        api.upload_folder(repo_id=name, folder_path=large, commit_message="sharded")
        before = fetched(name, "main")
        small = folder({"model.safetensors": WEIGHTS["new"]})
        api.upload_folder(repo_id=name, folder_path=small, delete_patterns="*.safetensors", commit_message="whole")
        return {"before": before, "after": fetched(name, "main")}


def conflicts() -> Any:
    with repository(api) as name:
        parent = api.model_info(name).sha
        api.create_commit(name, [Add("a.txt", b"1")], commit_message="1", parent_commit=parent)
        api.create_branch(name, branch="side")
        add = {"operations": [Add("a.txt", b"2")], "commit_message": "2"}
        refused = {
            "stale parent": refusal(api.create_commit, name, parent_commit=parent, **add),
            "repository exists": refusal(api.create_repo, name),
            "branch exists": refusal(api.create_branch, name, branch="side"),
            "delete nothing": refusal(api.delete_file, "nothing.txt", name),
            "not metadata": refusal(
                api.create_commit, name, [Add("README.md", b"---\ntags: {a: b}\n---\n")], commit_message="3"
            ),
        }
        kept = digest(api.hf_hub_download(name, "a.txt"))
        return {"refused": refused, "kept": kept, "again": api.create_repo(name, exist_ok=True).repo_id, "name": name}


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
        whole = [item.path for item in api.list_repo_tree(name, recursive=True, expand=True)]
        folder = [item.path for item in api.list_repo_tree(name, "b")]
        top = [item.path for item in api.list_repo_tree(name)]
        info = {item.path: getattr(getattr(item, "lfs", None), "sha256", None) for item in api.list_repo_tree(name)}
        api.delete_folder("a", name)
        left = [item.path for item in api.list_repo_tree(name)]
        return {"paths": paths, "whole": whole, "folder": folder, "top": top, "info": info, "left": left}


def datasets() -> Any:
    """A repository of another kind, whose addresses have a prefix, with the name of a model."""
    with repository(api) as name:
        api.create_repo(name, repo_type="dataset", private=True)
        try:
            files = {"data.parquet": WEIGHTS["old"], "a.csv": b"a,b\n"}
            operations = [Add(*item) for item in files.items()]
            api.create_commit(name, operations, commit_message="1", repo_type="dataset")
            place = Path(api.snapshot_download(name, repo_type="dataset", cache_dir=tempfile.mkdtemp()))
            return {"data": {path: digest(place / path) for path in files}, "model": fetched(name, "main")}
        finally:
            api.delete_repo(name, repo_type="dataset")


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


JOBS = {job.__name__: job for job in (commits, folders, conflicts, names, pull_requests, trees, datasets, outsiders)}

if __name__ == "__main__":
    main(JOBS)
