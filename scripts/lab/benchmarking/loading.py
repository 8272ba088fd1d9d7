"""Time loading in new processes: the installed qkv, a published folder with its own code, and stock transformers."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import qkv
from qkv.scripts.common.inspector import Job
from qkv.scripts.lab.benchmarking.contenders import OURS, THEIRS
from qkv.scripts.lab.benchmarking.equality import TOLERANCES, UnequalError, distance
from qkv.scripts.lab.benchmarking.timing import in_turns, ratios
from qkv.scripts.lab.benchmarking.workloads import Workload
from qkv.scripts.publishing.export.folder import build_folder
from qkv.scripts.publishing.integrity.loading import Loaded, load_in_clean_process

REMOTE = "qkv-published"
# Where the class of a loaded model is, by contender.
MODULES = {OURS: "qkv.", REMOTE: "transformers_modules.", THEIRS: "transformers."}
AUTO_CLASS = "AutoModelForCausalLM"


def measure_loading(workload: Workload, stock: Any, rounds: int, report: Callable[[str, int], None]) -> dict[str, Any]:
    """Return the record of a loading workload: the same weights in both forms, every load in a new process."""
    part = "again" if workload.step == "load again" else "first"
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        stock.save_pretrained(home / "stock")
        published = build_folder(qkv.from_transformers(stock), home / "published")
        folders = {OURS: published, REMOTE: published, THEIRS: home / "stock"}
        answers: dict[str, torch.Tensor] = {}

        def lap(name: str, step: Callable[[], Any]) -> float:
            loaded: Loaded = step()
            check_answer(name, answers.setdefault(THEIRS, loaded.outputs["logits"]), loaded.outputs["logits"])
            report(name, 1)
            return float(loaded.report["seconds"][part])

        laps = in_turns({name: loader(name, folders[name], home) for name in folders}, rounds, lap)
    contenders = {name: {"seconds": own, "times_as_fast": ratios(laps[THEIRS], own)} for name, own in laps.items()}
    return {**workload.sizes, "absent": {}, "contenders": contenders}


def loader(name: str, folder: Path, home: Path) -> Callable[[], Loaded]:
    """Return what loads a folder once."""
    return lambda: load(name, folder, home)


def load(name: str, folder: Path, home: Path) -> Loaded:
    """Load once in a new process."""
    job = Job(folder, AUTO_CLASS, {"input_ids": torch.arange(8)[None]}, remote=name == REMOTE, timed=True)
    (lap,) = load_in_clean_process([job], home, installed=name == OURS)
    if not lap.report["module"].startswith(MODULES[name]):
        raise RuntimeError(f"{name} took the class from {lap.report['module']}")
    return lap


def check_answer(name: str, first: torch.Tensor, answer: torch.Tensor) -> None:
    """Raise UnequalError where a loaded model has other outputs than the first one."""
    if (difference := distance(answer, first)) > TOLERANCES[torch.float32]:
        raise UnequalError(f"{name} differs by {difference:.2g} after loading; there is nothing to time")
