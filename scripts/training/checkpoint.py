"""Which states of a run are on disk? Folders that are whole or not there, and the newest of them that is complete."""

import json
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from qkv.scripts.common.files import file_hash, make_durable, sync

MANIFEST = "manifest.json"
NAME = re.compile(r"step-(\d{6,})")


@dataclass
class Snapshot:
    """A run's state after a step, in memory: tensors and texts by the name of their file.

    `best` is the step of the best checkpoint so far, which stays as long as one that knows of it: whichever is resumed
    from finds its best there.
    """

    step: int
    tensors: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    best: int | None = None


@dataclass
class Checkpoints:
    """The newest `keep` states of a run and the best one, written by one process.

    A checkpoint has its name only when every byte of it is on disk, so whatever happens while one is written, those
    before it stay. With `background` a thread writes while the training goes on; its error comes at the next call.
    """

    folder: Path
    keep: int = 2
    background: bool = False
    # The step of the best one so far, which whoever evaluates sets.
    best: int | None = None
    writer: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "checkpoint"))
    writing: Future[None] | None = None

    def save(self, snapshot: Snapshot) -> None:
        """Write a state, then remove what is older than need be; OSError, with all else as it was, if it cannot."""
        self.wait()
        if self.background:
            self.writing = self.writer.submit(self.write, snapshot)
        else:
            self.write(snapshot)

    def wait(self) -> None:
        """Return when nothing is being written any more; OSError when what was could not be."""
        writing, self.writing = self.writing, None
        if writing is not None:
            writing.result()

    def failed(self) -> bool:
        """Whether the background has an error to tell."""
        return self.writing is not None and self.writing.done() and self.writing.exception() is not None

    def write(self, snapshot: Snapshot) -> None:
        """Write a checkpoint, whole or not at all."""
        final = self.path(snapshot.step)
        partial = final.with_name(f".{final.name}.partial")
        try:
            fill(partial, snapshot)
            shutil.rmtree(final, ignore_errors=True)  # incomplete, or nobody would have come from before it to it
            partial.rename(final)
            sync(self.folder)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(partial, ignore_errors=True)
            raise OSError(
                f"the checkpoint of step {snapshot.step} could not be written to {self.folder}: {reason(error)}; those "
                "before it are as they were: mend that, and give the same command again"
            ) from error
        self.prune(snapshot.step)

    def prune(self, newest: int) -> None:
        """Remove what nobody will resume from: old ones, and those of a course that was left, beyond the newest."""
        kept = {step for step in sorted(self.steps()) if step <= newest}
        kept = set(sorted(kept)[-self.keep :])
        kept |= {best for step in kept if (best := manifest(self.path(step)).get("best")) is not None}
        for step in set(self.steps()) - kept:
            # Out of sight first: half a folder would be taken for a damaged checkpoint.
            hidden = self.path(step).with_name(f".{self.path(step).name}.old")
            self.path(step).rename(hidden)
            shutil.rmtree(hidden)

    def newest(self) -> tuple[int | None, str]:
        """The step of the newest complete checkpoint, and a sentence about those that are not; leftovers are removed.

        ValueError when there are checkpoints and none is complete.
        """
        for leftover in self.folder.glob(".step-*"):
            shutil.rmtree(leftover)
        skipped: list[str] = []
        for step in sorted(self.steps(), reverse=True):
            fault = first_fault(self.path(step))
            if fault is None:
                return step, f"{'; '.join(skipped)}; resuming from {self.path(step).name}" if skipped else ""
            skipped.append(f"checkpoint {self.path(step)} is incomplete ({fault})")
        if skipped:
            raise ValueError(f"{'; '.join(skipped)}; no other is left: remove {self.folder} to train from the start")
        return None, ""

    def steps(self) -> Iterator[int]:
        """The steps that have a folder."""
        for path in self.folder.glob("step-*"):
            if match := NAME.fullmatch(path.name):
                yield int(match[1])

    def path(self, step: int) -> Path:
        """The folder of a step."""
        return self.folder / f"step-{step:06}"


def first_fault(folder: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    files = manifest(folder).get("files")
    if not files:
        return f"{MANIFEST} is missing or damaged"
    for name, expected in files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        size = path.stat().st_size
        if size != expected["bytes"]:
            return f"{name} has {size:,} of {expected['bytes']:,} bytes"
        if file_hash(path) != expected["sha256"]:
            return f"{name} has other content than was written"
    return None


def manifest(folder: Path) -> dict[str, Any]:
    """What a checkpoint should hold; nothing where that cannot be read."""
    try:
        found: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        sound = all(set(file) == {"bytes", "sha256"} for file in found["files"].values())
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}
    return found if sound else {}


def fill(folder: Path, snapshot: Snapshot) -> None:
    """A new folder with a state and, last, its manifest, all of it on disk."""
    folder.mkdir(parents=True)
    for name, tensors in snapshot.tensors.items():
        save_file(tensors, folder / name)
    for name, text in snapshot.texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    files = {path.name: {"bytes": path.stat().st_size, "sha256": file_hash(path)} for path in sorted(folder.iterdir())}
    whole = {"step": snapshot.step, "best": snapshot.best, "files": files}
    (folder / MANIFEST).write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    make_durable(folder)


def reason(error: Exception) -> str:
    """What the operating system says, without Python's or Rust's words around it."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return re.sub(r"^Error while \w+: (I/O error: )?| \(os error \d+\)$", "", str(error))
