"""Describe a repository from its files: the answer to `GET /api/models/…`."""

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from typing import Any
from urllib.parse import urlsplit

import yaml

from loopback.messages import Request
from loopback.repository import Entry, Repository, Tree

FRONT_MATTER = re.compile(r"\A---[^\n\S]*\r?\n(.*?\n)?---[^\n\S]*(\r?\n|\Z)", re.DOTALL)


def describe(request: Request, repository: Repository, sha: str) -> dict[str, Any]:
    tree, name = repository.tree(sha), repository.name
    config, card = config_of(repository, tree), card_of(repository, tree)
    answer = {"_id": str(repository.key), "id": name, "modelId": name, "author": name.partition("/")[0], "sha": sha}
    answer |= {"createdAt": repository.created, "lastModified": repository.commit(sha).date}
    answer |= {"private": repository.private, "gated": False, "disabled": False}
    answer |= {"downloads": 0, "likes": 0, "usedStorage": 0, "spaces": [], "cardData": card}
    answer |= {"pipeline_tag": card.get("pipeline_tag"), "library_name": library(config, card)}
    answer |= {"config": {key: config[key] for key in ("architectures", "model_type", "auto_map") if key in config}}
    answer |= {"tags": list(dict.fromkeys(tags(config, card, tree)))}
    answer |= {"siblings": [sibling(path, tree[path], request.flag("blobs")) for path in sorted(tree)]}
    answer |= {"model-index": card["model-index"]} if "model-index" in card else {}
    if "evalResults" in urlsplit(request.target).query:
        answer["evalResults"] = list(evaluations(repository, tree))
    return answer


def config_of(repository: Repository, tree: Tree) -> dict[str, Any]:
    try:
        return dict(json.loads(repository.text(tree, "config.json") or "{}"))
    except ValueError:
        return {}


def card_of(repository: Repository, tree: Tree) -> dict[str, Any]:
    """The metadata of the model card, empty if they are not valid."""
    found = FRONT_MATTER.match(repository.text(tree, "README.md"))
    try:
        return dict(yaml.safe_load(found[1] or "") or {}) if found else {}
    except (ValueError, TypeError, yaml.YAMLError):
        return {}


def library(config: dict[str, Any], card: dict[str, Any]) -> str | None:
    return card.get("library_name") or ("transformers" if config else None)


def tags(config: dict[str, Any], card: dict[str, Any], tree: Tree) -> Iterator[str]:
    """The card's tags and those that follow from the files."""
    yield from card.get("tags") or []
    if config:
        yield "transformers"
    if any(path.endswith(".safetensors") for path in tree):
        yield "safetensors"
    if config.get("model_type"):
        yield config["model_type"]
    if "auto_map" in config:
        yield "custom_code"


def sibling(path: str, entry: Entry, blobs: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {"rfilename": path}
    if blobs:
        answer |= {"size": entry.size, "blobId": entry.oid}
        answer |= {"lfs": {"sha256": entry.lfs, "size": entry.size, "pointerSize": 134}} if entry.lfs else {}
    return answer


def evaluations(repository: Repository, tree: Tree) -> Iterator[dict[str, Any]]:
    for path in tree:
        if fnmatch(path, ".eval_results/*.yaml"):
            for data in yaml.safe_load(repository.text(tree, path)):
                yield {"filename": path, "data": data}
