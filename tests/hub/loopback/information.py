"""Describe a repository from its files: the answer to `GET /api/models/…`."""

from typing import Any

from loopback.messages import Request
from loopback.repository import Repository


def describe(request: Request, repository: Repository, sha: str) -> dict[str, Any]:
    tree, name = repository.tree(sha), repository.name
    answer = {"_id": str(repository.key), "id": name, "modelId": name, "author": name.partition("/")[0], "sha": sha}
    answer |= {"createdAt": repository.created, "lastModified": repository.commit(sha).date, "tags": []}
    answer |= {"private": repository.private, "gated": False, "disabled": False, "downloads": 0, "likes": 0}
    return {**answer, "siblings": [{"rfilename": path} for path in sorted(tree)]}
