"""Helpers for upload tests: a client process, a folder that changes, and the state of the Hub."""

import hashlib
import json
import random
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loopback.process import LoopbackHub

CLIENT = Path(__file__).with_name("upload_client.py")
OLD = {
    "config.json": b'{"version": 1}',
    "model.safetensors": random.Random(1).randbytes(300_000),
    "stale.py": b"old = 1\n",
    "LICENSE": b"the same\n",
}
NEW = {
    "config.json": b'{"version": 2}',
    "model-00001-of-00002.safetensors": random.Random(2).randbytes(200_000),
    "model-00002-of-00002.safetensors": random.Random(3).randbytes(200_000),
    "model.safetensors.index.json": b"{}",
    "LICENSE": b"the same\n",
}


class Client:
    """A process that uploads, in LFS or in Xet mode: which of the two is decided where the libraries are imported."""

    def __init__(self, process: "subprocess.Popen[str]", errors: Path) -> None:
        self.process, self.errors = process, errors

    def send(
        self,
        folder: Path,
        repo: str,
        *,
        token: str | None = "hf_alice",
        patience: Mapping[str, float] | None = None,
        **options: Any,
    ) -> None:
        """Begin an upload."""
        job = {"folder": str(folder), "repo": repo, "token": token, "options": options}
        job["patience"] = {"first_wait": 0.1, **(patience or {})}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Return the result: a `Published`, or an `error` of a `kind`."""
        line = self.process.stdout.readline()
        assert line, self.errors.read_text()
        return json.loads(line)

    def upload(self, folder: Path, repo: str, **options: Any) -> dict[str, Any]:
        self.send(folder, repo, **options)
        return self.answer()


@contextmanager
def client(hub: LoopbackHub, place: Path, *, xet: bool = False) -> Iterator[Client]:
    """A client process, which leaves what it said on standard error in `errors` of its place."""
    place.mkdir(parents=True, exist_ok=True)
    errors = place / "errors"
    with errors.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, CLIENT],
            env=hub.environment(place / "home", token=None, xet=xet),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
        try:
            yield Client(process, errors)
            process.stdin.close()
            assert process.wait(20) == 0, errors.read_text()
        finally:
            process.kill()
            process.wait()


def fill(folder: Path, files: Mapping[str, bytes]) -> Path:
    """A folder that holds these files and no others."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def look(hub: LoopbackHub, repo: str, what: str) -> Any:
    """Ask the Hub about a repository as its owner; None where there is no such thing."""
    request = urllib.request.Request(f"{hub.url}/api/models/{repo}{what}", headers={"Authorization": "Bearer hf_alice"})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


def tree(hub: LoopbackHub, repo: str, revision: str = "main") -> dict[str, str] | None:
    """{file: its hash} of a revision, without the Hub's own file."""
    found = look(hub, repo, f"/tree/{revision}?recursive=true")
    if found is None:
        return None
    return {entry["path"]: entry.get("lfs", entry)["oid"] for entry in found if entry["path"] != ".gitattributes"}


def hashes(files: Mapping[str, bytes], large: str = ".safetensors") -> dict[str, str]:
    """{file: its hash} as the Hub gives it."""
    return {
        name: hashlib.sha256(data).hexdigest()
        if name.endswith(large)
        else hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        for name, data in files.items()
    }


def commits(hub: LoopbackHub, repo: str, revision: str = "main") -> list[str]:
    """The commits of a branch, newest first."""
    return [commit["id"] for commit in look(hub, repo, f"/commits/{revision}")]
