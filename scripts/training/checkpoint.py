"""Write checkpoints atomically, which neither torch nor Accelerate does, and find the newest complete one."""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from qkv.scripts.common.files import file_hash, staged

Tensors = dict[str, dict[str, Tensor]]  # by name, by file
MANIFEST = "manifest.json"
NAME = re.compile(r"step-(\d{6,})")


@dataclass
class Checkpoints:
    """The newest `keep` checkpoints of a run and the best one, written by one process.

    A checkpoint gets its name when all its bytes are on disk.
    """

    folder: Path
    keep: int = 2

    def save(self, step: int, tensors: Tensors, texts: dict[str, str], best: int | None = None) -> None:
        """Write tensors and texts by file name, and remove old checkpoints; OSError leaves earlier ones as they were.

        `best` is the step of the best checkpoint so far, which stays as long as a checkpoint names it.
        """
        shutil.rmtree(self.path(step), ignore_errors=True)  # incomplete, or the run would have resumed from it
        try:
            with staged(self.path(step)) as folder:
                fill(folder, tensors, texts, {"step": step, "best": best})
        except (OSError, SafetensorError) as error:
            said = f"the checkpoint of step {step} could not be written to {self.folder}, where earlier ones are intact"
            raise OSError(f"{said}: {error}") from error
        self.prune(step)

    def prune(self, newest: int) -> None:
        """Remove old checkpoints, and later ones that were left when the run was resumed."""
        kept = set(sorted(step for step in self.steps() if step <= newest)[-self.keep :])
        kept |= {best for step in kept if (best := manifest(self.path(step)).get("best")) is not None}
        for step in set(self.steps()) - kept:
            # Hidden first, as half a folder would look like a damaged checkpoint.
            hidden = self.path(step).with_name(f".{self.path(step).name}.old")
            self.path(step).rename(hidden)
            shutil.rmtree(hidden)

    def newest(self) -> tuple[int | None, str]:
        """Return the newest complete step, and a sentence about incomplete ones; ValueError where all are."""
        for partial in self.folder.glob(".step-*"):
            shutil.rmtree(partial)
        skipped: list[str] = []
        for step in sorted(self.steps(), reverse=True):
            damage = first_damage(self.path(step))
            if damage is None:
                return step, f"{'; '.join(skipped)}; resuming from {self.path(step).name}" if skipped else ""
            skipped.append(f"checkpoint {self.path(step)} is incomplete ({damage})")
        if skipped:
            raise ValueError(f"{'; '.join(skipped)}; no other is left: remove {self.folder} to train from the start")
        return None, ""

    def steps(self) -> Iterator[int]:
        """Yield the steps that have a folder."""
        for path in self.folder.glob("step-*"):
            if match := NAME.fullmatch(path.name):
                yield int(match[1])

    def path(self, step: int) -> Path:
        """Return the folder of a step."""
        return self.folder / f"step-{step:06}"


def first_damage(folder: Path) -> str | None:
    """Describe the first damage of a checkpoint; None where it is complete."""
    files = manifest(folder).get("files")
    if not files:
        return f"{MANIFEST} is missing or damaged"
    for name, expected in files.items():
        if not (folder / name).is_file():
            return f"{name} is missing"
        if file_hash(folder / name) != expected["sha256"]:
            return f"{name} has changed since it was written"
    return None


def manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a checkpoint; empty where it is missing or damaged."""
    try:
        content: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content


def fill(folder: Path, tensors: Tensors, texts: dict[str, str], facts: dict[str, int | None]) -> None:
    """Write tensors, texts and, last, their manifest to an empty folder."""
    for name, held in tensors.items():
        save_file(held, folder / name)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    files = {path.name: {"bytes": path.stat().st_size, "sha256": file_hash(path)} for path in sorted(folder.iterdir())}
    (folder / MANIFEST).write_text(json.dumps({**facts, "files": files}, indent=2) + "\n", encoding="utf-8")
