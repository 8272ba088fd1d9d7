"""Use one Hub as several users: the client's side of `test_loopback.py`."""

import urllib.request
from array import array
from typing import Any

from huggingface_hub import CommitOperationAdd as Add
from huggingface_hub import CommitOperationDelete as Delete
from huggingface_hub import HfApi

from client import digest, main, refusal, repository

alice, bob, reader, nobody = (HfApi(token=token) for token in ("hf_alice", "hf_bob", "hf_ro", False))
COMPRESSIBLE = {
    "text.bin": b"".join(b"%d\0 squared is %d\n" % (number, number**2) for number in range(12_000)),
    "floats.bin": array("f", [number / 7 for number in range(50_000)]).tobytes(),
    "zeros.bin": bytes(200_000),
}


def push(api: HfApi, name: str) -> Any:
    return api.create_commit(name, [Add("a.txt", b"2")], commit_message="2")


def users() -> Any:
    """Alice's repositories, private and public, as others find them."""
    with repository(alice, "users-hidden") as hidden, repository(alice, "users-open", private=False) as public:
        alice.create_commit(public, [Add("a.txt", b"1")], commit_message="1")
        refused = {
            "bob sees hidden": refusal(bob.model_info, hidden),
            "nobody sees hidden": refusal(nobody.model_info, hidden),
            "bob commits": refusal(push, bob, public),
            "bob deletes": refusal(bob.delete_repo, public),
            "bob creates for alice": refusal(bob.create_repo, "alice/bobs"),
            "reader commits": refusal(push, reader, hidden),
            "nobody commits": refusal(push, nobody, public),
        }
        seen = [reader.model_info(hidden).id == hidden, bob.model_info(public).id == public]
        return {"refused": refused, "seen": seen}


def cache() -> Any:
    """The same file at two commits, into one cache."""
    with repository(alice, "cache") as name:
        alice.create_commit(name, [Add("a.safetensors", b"cached"), Add("b.txt", b"1")], commit_message="1")
        first = alice.hf_hub_download(name, "a.safetensors")
        alice.create_commit(name, [Add("b.txt", b"2"), Delete(".gitattributes")], commit_message="2")
        return [first, alice.hf_hub_download(name, "a.safetensors")]


def assembled() -> Any:
    """Upload through Xet, and read without it."""
    with repository(alice, "assembled", private=False) as name:
        alice.create_commit(name, [Add(*item) for item in COMPRESSIBLE.items()], commit_message="1")
        urls = [f"{alice.endpoint}/{name}/resolve/main/{path}" for path in COMPRESSIBLE]
        through_xet = [item.xet_hash for item in alice.list_repo_tree(name) if item.path in COMPRESSIBLE]
        return {"contents": [digest(urllib.request.urlopen(url).read()) for url in urls], "through xet": through_xet}


LFS, XET = (users, cache), (assembled,)

if __name__ == "__main__":
    main({job.__name__: job for job in LFS + XET})
