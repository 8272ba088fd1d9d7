"""A training that is killed ends with the same bits: weights, metrics and samples. `tests/soak` kills it at any moment."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from processes import launch
from qkv.scripts.training.record import read_metrics

WORKER = Path(__file__).with_name("kill_worker.py")
STEPS, BATCH = 12, 8
Samples = dict[int, list[int]]
Whole = tuple[dict[str, str], Samples]


def train(folder: Path, processes: int, **job: Any) -> list[int]:
    """The exit statuses of the processes of a training."""
    words = [json.dumps({"folder": str(folder), **job})]
    return launch("kill_worker", words, folder.with_name(f"{folder.name}-log"), processes, ACCELERATE_USE_CPU="true")


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Whole]:
    """The files and samples of trainings without an interruption, of one process and of two."""
    found = {}
    for processes in (1, 2):
        folder = tmp_path_factory.mktemp("whole") / "run"
        assert train(folder, processes) == [0] * processes, log(folder)
        found[processes] = left(folder), samples(folder, processes)
    return found


def log(folder: Path) -> str:
    """The output of the first process."""
    return folder.with_name(f"{folder.name}-log-0").read_text()


def left(folder: Path) -> dict[str, str]:
    """Digests of metrics, weights, and the moments of the last state."""
    last = folder / "checkpoints" / f"step-{STEPS:06}"
    paths = [folder / "metrics.jsonl", folder / "model.safetensors", *sorted(last.glob("*.safetensors"))]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def samples(folder: Path, processes: int) -> Samples:
    """The places that each step trained on when it was last taken."""
    steps: Samples = {}
    for rank in range(processes):
        path = folder.with_name(f"{folder.name}-seen-{rank}")
        for step, places in dict(map(json.loads, path.read_text().splitlines())).items():
            steps[step] = sorted(steps.get(step, []) + places)
    return steps


def check(whole: Whole, folder: Path, processes: int, death: dict[str, Any], **job: Any) -> None:
    """Kill a training, give the command again, and compare."""
    statuses = train(folder, processes, **job, death=death)
    assert statuses[death["rank"]] == -9, (statuses, log(folder))
    assert train(folder, processes, **job) == [0] * processes, log(folder)
    found = samples(folder, processes)
    assert (left(folder), found) == whole
    assert sorted(place for places in found.values() for place in places) == list(range(STEPS * BATCH))


@pytest.mark.parametrize(
    ("kind", "call", "processes"),
    [("write", 2, 1), ("evaluation", 1, 1), ("data", 5, 1), ("save", 1, 2), ("step", 8, 2)],
)
@pytest.mark.costly(2)
def test_killed_training_ends_with_the_same_bits(
    wholes: dict[int, Whole], tmp_path: Path, kind: str, call: int, processes: int
) -> None:
    death = {"in": kind, "call": call, "rank": processes - 1}
    check(wholes[processes], tmp_path / "run", processes, death)


def test_clock_saves_without_save_every(wholes: dict[int, Whole], tmp_path: Path) -> None:
    words = ["save_every=null", "eval_every=4", "save_minutes=0.0001"]
    check(wholes[2], tmp_path / "run", 2, {"in": "step", "call": 9, "rank": 1}, words=words)
    (resumed,) = re.findall(r"resuming from .*step-(\d+)", log(tmp_path / "run"))
    assert 0 < int(resumed) < 9, "the clock of one process, and the same step on both"


@pytest.mark.slow
def test_stopped_training_changes_its_number_of_processes(tmp_path: Path) -> None:
    words = ["model.residual_dropout=0"]
    assert train(tmp_path / "alone", 1, words=words) == [0]
    for processes, step in ((2, 4), (1, 3)):
        # One process gets the signal, all stop.
        death = {"in": "step", "call": step, "rank": 0, "signal": signal.SIGTERM}
        assert train(tmp_path / "run", processes, words=words, death=death) == [143] * processes
    assert train(tmp_path / "run", 2, words=words) == [0, 0]
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["resumed"] == [4, 7] and record["device"]["processes"] == 2
    alone, found = (read_metrics(tmp_path / name) for name in ("alone", "run"))
    for expected, line in zip(alone, found, strict=True):
        assert line == pytest.approx(expected, abs=1e-5), (expected, line)


@pytest.mark.slow
def test_torchrun_restarts_a_killed_training(wholes: dict[int, Whole], tmp_path: Path) -> None:
    """Two of three attempts lose a process; without a folder in the command, all find the same one."""
    folder = tmp_path / "run"
    deaths = [{"in": "step", "call": 8, "rank": 1}, {"in": "save", "call": 1, "rank": 0}]
    job = {"folder": str(folder), "processes": 2, "out": None, "deaths": deaths}
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "2"]
    done = subprocess.run(
        [sys.executable, *launch, WORKER, json.dumps(job)], cwd=tmp_path, capture_output=True, text=True, timeout=900,
        env={**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (made,) = (tmp_path / "runs").iterdir()
    assert done.stderr.count("resuming from") == 2
    assert (left(made), samples(folder, 2)) == wholes[2]
