"""Read runs from their folders, finished or not."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from qkv.scripts.common.files import RECORD, similar_folder
from qkv.scripts.common.run_folder import CHECKPOINTS, LOCK, METRICS, STATE, is_locked, read_metrics

DEFAULT = Path("runs")


@dataclass
class Run:
    """A training as its folder tells it: its record once it is finished, and what is logged."""

    folder: Path
    record: dict[str, Any] | None

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        """The logged metrics, oldest first; a record that was moved alone has none."""
        path = self.folder / METRICS
        try:
            return read_metrics(self.folder) if path.is_file() else []
        except ValueError as error:
            raise ValueError(f"{path} is damaged ({error}); move the run away, or name other folders") from None

    @cached_property
    def recipe(self) -> dict[str, Any]:
        """The fields of its recipe, by its record or its newest checkpoint; none before there is one."""
        if self.record is not None:
            return dict(self.record["recipe"])
        for state in sorted((self.folder / CHECKPOINTS).glob(f"step-*/{STATE}"), reverse=True):
            return dict(json.loads(state.read_text(encoding="utf-8"))["recipe"])
        return {}

    @property
    def state(self) -> str:
        """`finished`, `running` or `stopped`."""
        if self.record is not None:
            return "finished"
        return "running" if is_locked(self.folder / CHECKPOINTS / LOCK) else "stopped"

    @property
    def step(self) -> int:
        """The last step that is logged."""
        if self.record is not None:
            return int(self.record["steps"]["taken"])
        return max((line["step"] for line in self.lines), default=0)

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """The metrics by split: of the weights that are kept, or of the last evaluation."""
        if self.record is not None:
            return dict(self.record["metrics"])
        return {
            line["split"]: {name: value for name, value in line.items() if name not in ("split", "step")}
            for line in self.lines
            if "split" in line
        }

    @property
    def changed(self) -> float:
        """The seconds since 1970 at which it was last written to."""
        return max(path.stat().st_mtime for name in (METRICS, RECORD) if (path := self.folder / name).is_file())

    def as_json(self) -> dict[str, Any]:
        """Return what is listed of it."""
        facts = {"folder": str(self.folder), "state": self.state, "step": self.step, "metrics": self.metrics}
        return facts | {"recipe": self.recipe, "time": self.record["time"] if self.record else None}


def find_runs(folders: Sequence[Path]) -> list[Run]:
    """Return all runs in and below folders, the newest first; ValueError where a folder or its runs are missing."""
    runs: dict[Path, Run] = {}
    for folder in folders or [DEFAULT]:
        own = folder.expanduser()
        if not own.is_dir():
            hint = similar_folder(own) or "; qkv train digits out=runs/first makes a run"
            raise ValueError(f"there is no folder {folder}{hint}")
        below = {path.parent.resolve(): Run(path.parent, read_record(path.parent)) for path in run_files(own)}
        if not below:
            raise ValueError(f"{folder} holds no run, which has a {METRICS}; qkv train digits out=runs/first makes one")
        runs |= below
    return sorted(runs.values(), key=lambda run: run.changed, reverse=True)


def run_files(folder: Path) -> Iterator[Path]:
    """Yield a file of each run in and below a folder; checkpoints in a run are none."""
    for name in (METRICS, RECORD):
        if (folder / name).is_file():
            yield folder / name
            return
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
            yield from run_files(path)


def read_record(folder: Path) -> dict[str, Any] | None:
    """Return the record of a run, None before it is finished; ValueError for a file that is none."""
    path = folder / RECORD
    if not path.is_file():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return {name: record[name] for name in ("recipe", "steps", "metrics", "time", "parameters")}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is no record of a training ({error!r}); move it away, or name other folders"
        ) from None
