"""Read data sets of the Hub: the client's side of `test_author.py`."""

import io
import json
from typing import Any

from datasets import disable_progress_bars
from huggingface_hub import CommitOperationAdd as Add
from huggingface_hub import HfApi
from PIL import Image

import checkout  # noqa: F401
from qkv.scripts.data.loading import identity, read, splits
from qkv.scripts.data.validation import check_image

api = HfApi()
disable_progress_bars()


def lines(words: list[str]) -> bytes:
    return "".join(json.dumps({"text": word}) + "\n" for word in words).encode()


def make(name: str, *commits: dict[str, bytes]) -> list[str]:
    """Make a data set, and return its commits."""
    api.create_repo(name, repo_type="dataset", private=True)
    return [
        api.create_commit(name, [Add(*item) for item in files.items()], commit_message="data", repo_type="dataset").oid
        for files in commits
    ]


def words(name: str, **options: Any) -> list[str]:
    return [record["text"] for record in read(name, **options)]


def tables() -> Any:
    """Two versions of a data set with two splits."""
    name, old = "alice/tables", {"train.jsonl": lines([f"old {n}" for n in range(6)]), "test.jsonl": lines(["tested"])}
    first, second = make(name, old, {"train.jsonl": lines([f"new {n}" for n in range(4)])})
    return {
        "table": words(name),
        "stream": words(name, streaming=True),
        "table at first": words(f"{name}@{first}"),
        "stream at first": words(f"{name}@{first}", streaming=True),
        "splits": splits(name),
        "test": words(name, split="test"),
        "identity": identity(name),
        "identity at first": identity(f"{name}@{first}"),
        "first": first,
        "second": second,
    }


def png(shade: int) -> bytes:
    file = io.BytesIO()
    Image.new("L", (3, 2), shade).save(file, "png")
    return file.getvalue()


def pictures() -> Any:
    """An image folder."""
    make("alice/pictures", {"train/cat/1.png": png(1), "train/dog/1.png": png(2)})
    found = {"table": read("alice/pictures"), "stream": read("alice/pictures", streaming=True)}
    return {
        form: [[record["label"], check_image(record["image"]).size] for record in data] for form, data in found.items()
    }


def said(where: str, **options: Any) -> str:
    try:
        read(where, **options)
    except ValueError as error:
        return str(error)
    return ""


def missing() -> Any:
    make("alice/missing", {"train.jsonl": lines(["one"])})
    return {
        "nobody": said("alice/nobody"),
        "split": said("alice/missing", split="validation"),
        "column": said("alice/missing", columns=["txt"]),
    }
