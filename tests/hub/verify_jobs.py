"""Jobs of a client that publishes a model twice, damages it, and verifies it: online, then offline from its cache."""

import os
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi
from transformers import AutoModelForCausalLM

import checkout  # noqa: F401  qkv from the checkout
import qkv
from client import main, refusal
from published import ours, shards
from qkv.scripts.publishing.export.folder import build_folder
from qkv.scripts.publishing.integrity.manifest import identity

REPO = "alice/qkv-test-verify"
HOME = Path(os.environ["HF_HOME"])


def told(report: Any) -> dict[str, Any]:
    """A report as JSON."""
    return {
        "sentence": report.sentence,
        "commit": report.commit,
        "rows": {row.check: row.result for row in report.rows},
    }


def loaded(**options: Any) -> str:
    """The class of what QKV_VERIFY=1 lets through."""
    os.environ["QKV_VERIFY"] = "1"
    try:
        return type(AutoModelForCausalLM.from_pretrained(REPO, **options)).__name__
    finally:
        del os.environ["QKV_VERIFY"]


def publish() -> dict[str, str]:
    """{tag: commit}: two models, the second with a bit flipped, without a manifest, and with code from the first."""
    api, found = HfApi(), {}
    api.create_repo(REPO)
    first, second = (build_folder(ours(seed), HOME / f"model{seed}") for seed in (0, 1))
    data = bytearray(shards(second)[-1].read_bytes())
    data[-4] ^= 1
    for tag, push in {
        "first": lambda: api.upload_folder(repo_id=REPO, folder_path=first),
        "second": lambda: api.upload_folder(repo_id=REPO, folder_path=second),
        "flipped": lambda: api.upload_file(
            repo_id=REPO, path_or_fileobj=bytes(data), path_in_repo=shards(second)[-1].name
        ),
        "bare": lambda: api.delete_file("qkv_manifest.json", REPO),
    }.items():
        found[tag] = push().oid
        api.create_tag(REPO, tag=tag, revision=found[tag])
    return {**found, "identity": identity(first)}


def online() -> dict[str, Any]:
    """Verify each revision."""
    first = HOME / "model0"
    return {
        "expected": told(qkv.verify(REPO, revision="first", expect=identity(first))),
        "trusted": told(qkv.verify(REPO, revision="first", trust_remote_code=True)),
        "untrusted": told(qkv.verify(REPO, revision="first")),
        "wrong revision": refusal(qkv.verify, REPO, revision="second", expect=identity(first)),
        "wrong revision, by name": refusal(qkv.verify, REPO, revision="second", expect=first),
        "flipped": refusal(qkv.verify, REPO, revision="flipped"),
        "bare": refusal(qkv.verify, REPO, revision="bare"),
        "unknown": refusal(qkv.verify, REPO, revision="third"),
    }


def guarded() -> dict[str, Any]:
    """Load each revision with QKV_VERIFY=1."""
    return {
        "first": loaded(revision="first"),
        "low": loaded(revision="second", dtype="bfloat16"),
        "flipped": refusal(loaded, revision="flipped"),
        "bare": refusal(loaded, revision="bare"),
    }


def offline() -> dict[str, Any]:
    """Verify from the cache alone; `QKV_TEST_COMMIT` is the first commit."""
    return {
        "tag": told(qkv.verify(REPO, revision="first")),
        "commit": told(qkv.verify(REPO, revision=os.environ["QKV_TEST_COMMIT"])),
        "guarded": loaded(revision="first", local_files_only=True),
        "unknown": refusal(qkv.verify, "alice/qkv-test-never-seen"),
    }


if __name__ == "__main__":
    main({job.__name__: job for job in (publish, online, guarded, offline)})
