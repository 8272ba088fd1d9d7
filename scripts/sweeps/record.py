"""Record a sweep in its folder, before and after each trial, so that it goes on wherever it was ended."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from qkv.scripts.common.files import write_atomically
from qkv.scripts.sweeps.space import Chosen
from qkv.scripts.training.early_stopping import LOWER_IS_BETTER

JSON, CSV = "sweep.json", "sweep.csv"
# What a training is chosen by where its recipe watches nothing: the first of these that is measured, or the loss.
SELECTED_BY = ("accuracy", "ap", "wer", "bleu", "exact_match", "retrieval_seen", "rmse", "loss")
SPLIT = "validation"


@dataclass
class Trial:
    """A training of a sweep: its folder, the values it tries, and what it reached, or why it failed."""

    number: int
    folder: str
    chosen: Chosen
    state: str = "running"
    metrics: dict[str, float] = field(default_factory=dict)
    minutes: float | None = None
    error: str = ""


@dataclass
class SweepRecord:
    """A sweep: the command, its recipe, the words that stay and the ranges and lists of those that vary, its trials.

    `metric` is what it is sorted by, known when the first trial is finished.
    """

    command: str
    recipe: str
    fixed: list[str]
    space: dict[str, str]
    metric: str = ""
    trials: list[Trial] = field(default_factory=list)

    @property
    def lower_is_better(self) -> bool:
        """True for losses and errors."""
        return self.metric in LOWER_IS_BETTER

    def value(self, trial: Trial) -> float | None:
        """Return what a trial reached; None where it failed or is not finished."""
        return trial.metrics.get(self.metric) if trial.state == "finished" else None

    def finish(self, trial: Trial, record: dict[str, Any], watch: str | None) -> None:
        """Put the results of a training into its trial."""
        metrics = record["metrics"][SPLIT]
        watched = (watch or "").removeprefix(f"{SPLIT} ")
        self.metric = self.metric or watched or next(name for name in SELECTED_BY if name in metrics)
        trial.metrics, trial.minutes = metrics, round(record["time"]["training_wall_s"] / 60, 2)
        trial.state, trial.error = "finished", ""

    def ranked(self) -> list[Trial]:
        """Return the trials, the best first and the failed ones last."""
        reached = [trial for trial in self.trials if self.value(trial) is not None]
        best = sorted(reached, key=lambda trial: self.value(trial) or 0.0, reverse=not self.lower_is_better)
        return [*best, *(trial for trial in self.trials if trial not in reached)]

    def write(self, folder: Path) -> None:
        """Write the record, and its trials as a table."""
        write_atomically(folder / JSON, json.dumps(asdict(self), indent=2) + "\n")
        text = io.StringIO()
        names = sorted({name for trial in self.trials for name in trial.metrics})
        table = csv.writer(text, lineterminator="\n")
        table.writerow(["trial", *self.space, *(f"{SPLIT} {name}" for name in names), "minutes", "state", "folder"])
        for trial in self.ranked():
            values = [trial.metrics.get(name, "") for name in names]
            minutes = "" if trial.minutes is None else trial.minutes
            table.writerow([trial.number, *trial.chosen.values(), *values, minutes, trial.state, trial.folder])
        write_atomically(folder / CSV, text.getvalue())


def read_sweep(folder: Path) -> SweepRecord | None:
    """Read the record of a sweep; None where there is none."""
    if not (folder / JSON).exists():
        return None
    values = json.loads((folder / JSON).read_text(encoding="utf-8"))
    return SweepRecord(**values | {"trials": [Trial(**trial) for trial in values["trials"]]})


def check_same_sweep(saved: SweepRecord, wanted: SweepRecord, folder: Path, free: Sequence[str]) -> None:
    """Raise ValueError where a folder holds another sweep; what may change in a training may change here."""
    for what, was, now in (
        ("recipe", saved.recipe, wanted.recipe),
        ("fields that vary", spelled(saved.space), spelled(wanted.space)),
        ("other fields", compared(saved.fixed, free), compared(wanted.fixed, free)),
    ):
        if was != now:
            raise ValueError(
                f"{folder} is of a sweep whose {what} are {was or 'none'}, and this one has {now or 'none'}; set them "
                "back to go on, or give another out="
            )


def spelled(space: dict[str, str]) -> str:
    """Return the fields that vary, as they are typed."""
    return " ".join(f"{label}={typed}" for label, typed in space.items())


def compared(fixed: Sequence[str], free: Sequence[str]) -> str:
    """Return the words that stay, without those that may change."""
    return " ".join(sorted(word for word in fixed if word.partition("=")[0] not in free))
