"""What uploads are tested with: a client process for many of them, a folder that changes, and what the Hub made of it."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi
from huggingface_hub.hf_api import RepoFile

from loopback.process import LoopbackHub

CLIENT = Path(__file__).with_name("upload_client.py")
OLD = {
    "config.json": b'{"version": 1}',
    "model.safetensors": bytes(range(256)) * 1200,
    "stale.py": b"old = 1\n",
    "LICENSE": b"the same\n",
}
NEW = {
    "config.json": b'{"version": 2}',
    "model-00001-of-00002.safetensors": bytes(range(255)) * 1100,
    "model-00002-of-00002.safetensors": bytes(range(254)) * 1100,
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
        dry_run: bool = False,
        patience: Mapping[str, float] | None = None,
        **target: Any,
    ) -> None:
        """Begin an upload."""
        job = {"folder": str(folder), "token": token, "dry_run": dry_run, "target": {"repo": repo, **target}}
        job["patience"] = {"first_wait": 0.1, **(patience or {})}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """What came of it: an `Uploaded`, or an `error` of a `kind`."""
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
