"""What goes on between several users, and what goes wrong: the client's side of `test_loopback.py`."""

import tempfile
import time
import urllib.request
from array import array
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd as Add
from huggingface_hub import CommitOperationDelete as Delete
from huggingface_hub import HfApi

from client import content, digest, main, refusal, repository

alice, bob, reader, nobody = (HfApi(token=token) for token in ("hf_alice", "hf_bob", "hf_ro", False))
LARGE = content("large", 12_000_000)  # clients resume in steps of ten million bytes
WEIGHTS = {name: content(name, 300_000) for name in ("killed", "before", "after", "proposed")}
COMPRESSIBLE = {
    "text.bin": b"".join(b"%d\0 squared is %d\n" % (number, number**2) for number in range(12_000)),
    "floats.bin": array("f", [number / 7 for number in range(50_000)]).tobytes(),
    "zeros.bin": bytes(200_000),
}


def fetched(api: HfApi, name: str, path: str) -> str:
    """The SHA-256 of a file as an empty cache gets it."""
    return digest(api.hf_hub_download(name, path, cache_dir=tempfile.mkdtemp()))


def head(name: str) -> Any:
    return alice.model_info(name).sha


def push(api: HfApi, name: str, **options: Any) -> Any:
    return api.create_commit(name, [Add("a.txt", b"2")], commit_message="2", **options)


def users() -> Any:
    """Alice's repositories, private and public, as others find them."""
    with repository(alice, "users-hidden") as hidden, repository(alice, "users-open", private=False) as public:
        alice.create_commit(public, [Add("a.txt", b"1")], commit_message="1")
        proposed = push(bob, public, create_pr=True).pr_num
        refused = {
            "bob sees hidden": refusal(bob.model_info, hidden),
            "nobody sees hidden": refusal(nobody.model_info, hidden),
            "bob commits": refusal(push, bob, public),
            "bob merges": refusal(bob.merge_pull_request, public, proposed),
            "bob deletes": refusal(bob.delete_repo, public),
            "bob creates for alice": refusal(bob.create_repo, "alice/bobs"),
            "reader commits": refusal(push, reader, hidden),
            "nobody commits": refusal(push, nobody, public),
        }
        listed = [model.id for model in nobody.list_models(author="alice", search="qkv-test-run-users")]
        seen = {"reader": reader.model_info(hidden).id, "bob": fetched(bob, public, "a.txt")}
        return {"refused": refused, "listed": listed, "seen": seen, "hidden": hidden, "public": public}


def proposals() -> Any:
    """Bob works on a pull request of his own, which Alice merges."""
    with repository(alice, "proposals", private=False) as name:
        folder = Path(tempfile.mkdtemp())
        (folder / "model.safetensors").write_bytes(WEIGHTS["proposed"])
        opened = bob.upload_folder(repo_id=name, folder_path=folder, create_pr=True)
        revision = "refs/pr/1"
        push(bob, name, revision=revision)
        refused = refusal(push, reader, name, revision=revision)
        alice.merge_pull_request(name, 1)
        files = sorted(alice.list_repo_files(name))
        return {"url": opened.pr_url, "reader": refused["status"], "files": files}


def organisations() -> Any:
    name = "acme/qkv-test-team"
    alice.create_repo(name)
    alice.move_repo(name, f"{name}-moved")
    moved = [refusal(alice.model_info, name)["kind"], alice.model_info(f"{name}-moved").id]
    alice.delete_repo(f"{name}-moved")
    return {"moved": moved, "deleted": refusal(alice.model_info, f"{name}-moved")["kind"]}


def gates() -> Any:
    """A gated repository is known to all and read by those who were let in."""
    with repository(alice, "gated", private=False) as name:
        alice.create_commit(name, [Add("a.txt", b"1"), Add("a.bin", b"\0")], commit_message="1")
        alice.update_repo_settings(name, gated="auto")
        refused = {
            f"{who} {path}": refusal(api.hf_hub_download, name, path)
            for who, api in {"bob": bob, "nobody": nobody}.items()
            for path in ("a.txt", "a.bin")
        }
        shown = bob.model_info(name).gated
        alice.grant_access(name, "bob")
        return {"refused": refused, "shown": shown, "let in": fetched(bob, name, "a.txt")}


def large() -> Any:
    """A file that goes up in parts, and whose way down is cut once."""
    with repository(alice, "large") as name:
        alice.create_commit(name, [Add("model.safetensors", LARGE)], commit_message="large")
        return fetched(alice, name, "model.safetensors")


def cache() -> Any:
    """The same file at two commits, into one cache."""
    with repository(alice, "cache") as name:
        alice.create_commit(name, [Add("a.safetensors", b"cached"), Add("b.txt", b"1")], commit_message="1")
        first = alice.hf_hub_download(name, "a.safetensors")
        again = alice.hf_hub_download(name, "a.safetensors")
        alice.create_commit(name, [Add("b.txt", b"2"), Delete(".gitattributes")], commit_message="2")
        second = alice.hf_hub_download(name, "a.safetensors")
        return {"paths": [first, again, second], "contents": [digest(first), digest(second)]}


def too_many() -> Any:
    with repository(alice, "too-many") as name:
        started = time.monotonic()
        alice.create_commit(name, [Add("a.bin", b"\0")], commit_message="1")
        return {"seconds": time.monotonic() - started, "content": fetched(alice, name, "a.bin")}


def faulty(label: str, weights: bytes) -> Any:
    """A commit that fails, and the same again."""
    with repository(alice, label) as name:
        heads = [head(name)]
        change = {"a.txt": b"1", "model.safetensors": weights}
        failed = refusal(alice.create_commit, name, [Add(*item) for item in change.items()], commit_message="1")
        heads.append(head(name))
        heads.append(alice.create_commit(name, [Add(*item) for item in change.items()], commit_message="1").oid)
        history = [commit.title for commit in alice.list_repo_commits(name)]
        files = sorted(alice.list_repo_files(name))
        return {"failed": failed, "heads": heads, "history": history, "files": files}


def unavailable() -> Any:
    return faulty("unavailable", b"unavailable")


def lost_before() -> Any:
    return faulty("lost-before", WEIGHTS["before"])


def lost_after() -> Any:
    return faulty("lost-after", WEIGHTS["after"])


def race() -> Any:
    """Two commits on the same parent, of which the Hub holds the first back."""
    with repository(alice, "race") as name:
        parent = head(name)

        def push(word: str) -> Any:
            options = {"commit_message": word, "parent_commit": parent}
            return refusal(HfApi().create_commit, name, [Add(f"{word}.txt", b"1")], **options)

        with ThreadPoolExecutor() as pool:
            answers = list(pool.map(push, ("one", "two")))
        return {"statuses": [answer["status"] for answer in answers], "files": alice.list_repo_files(name)}


def killed() -> Any:
    """An upload during which the Hub dies and comes back."""
    with repository(alice, "killed") as name:
        change = [Add("model.safetensors", WEIGHTS["killed"]), Add("a.txt", b"1")]
        alice.create_commit(name, change, commit_message="survived")
        history = [commit.title for commit in alice.list_repo_commits(name)]
        return {"content": fetched(alice, name, "model.safetensors"), "history": history}


def assembled() -> Any:
    """What came through Xet, read without it."""
    with repository(alice, "assembled", private=False) as name:
        alice.create_commit(name, [Add(*item) for item in COMPRESSIBLE.items()], commit_message="1")
        urls = [f"{alice.endpoint}/{name}/resolve/main/{path}" for path in COMPRESSIBLE]
        tree = alice.get_paths_info(name, list(COMPRESSIBLE))
        contents = [digest(urllib.request.urlopen(url).read()) for url in urls]
        return {"contents": contents, "through xet": [item.xet_hash is not None for item in tree]}


def information() -> Any:
    """What the Hub makes of the files of a model."""
    card = b"---\nlicense: apache-2.0\ntags: [own]\npipeline_tag: fill-mask\n---\n# A model\n"
    config = b'{"model_type": "qkv_encoder", "auto_map": {"AutoConfig": "a.B"}}'
    with repository(alice, "information") as name:
        files = {"README.md": card, "config.json": config, "model.safetensors": b"\0"}
        alice.create_commit(name, [Add(*item) for item in files.items()], commit_message="1")
        info = alice.model_info(name, files_metadata=True)
        sizes = {sibling.rfilename: sibling.size for sibling in info.siblings}
        words = {"tags": info.tags, "task": info.pipeline_tag, "library": info.library_name}
        return {**words, "license": info.card_data.license, "sizes": sizes, "who": alice.whoami()["orgs"][0]["name"]}


QUICK = (users, organisations, gates, large, cache, unavailable, lost_before, lost_after, information)
WAITING = (too_many, race)
THROUGH_XET = (assembled, proposals)
JOBS = {job.__name__: job for job in (*QUICK, *WAITING, *THROUGH_XET, killed)}

if __name__ == "__main__":
    main(JOBS)
