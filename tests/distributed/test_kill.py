"""A training that is killed, wherever it is, ends as if nothing had happened: weights, metrics and samples, bit by bit."""

import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from processes import launch
from qkv.scripts.common.run_folder import read_metrics

WORKER = Path(__file__).with_name("kill_worker.py")
STEPS, BATCH = 12, 8
KINDS = ("step", "save", "evaluation", "data", "run")
Samples = dict[int, list[int]]


def train(folder: Path, processes: int, **job: Any) -> list[int]:
    """How each process of a training ended."""
    words = [json.dumps({"folder": str(folder), **job})]
    return launch("kill_worker", words, folder.with_name(f"{folder.name}-log"), processes, ACCELERATE_USE_CPU="true")


@dataclass
class Whole:
    """A training that nothing interrupted: what it left, and how long what took in it."""

    left: dict[str, str]
    samples: Samples
    seconds: dict[str, float]


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Whole]:
    """That of one process and that of two."""
    found = {}
    for processes in (1, 2):
        folder = tmp_path_factory.mktemp("whole") / "run"
        assert train(folder, processes) == [0] * processes, log(folder)
        found[processes] = Whole(left(folder), samples(folder, processes), seconds(folder))
    return found


def log(folder: Path) -> str:
    """What the first process said."""
    return folder.with_name(f"{folder.name}-log-0").read_text()


def left(folder: Path) -> dict[str, str]:
    """Digests of metrics, weights, and the last state with its moments and random numbers."""
    last = folder / "checkpoints" / f"step-{STEPS:06}"
    paths = [folder / "metrics.jsonl", folder / "model.safetensors", *sorted(last.glob("*.safetensors"))]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def notes(folder: Path, name: str, rank: int) -> list[list[Any]]:
    """What one process wrote down."""
    path = folder.with_name(f"{folder.name}-{name}-{rank}")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def samples(folder: Path, processes: int) -> Samples:
    """The places that each step trained on when it was last taken: then its gradients stayed."""
    steps: Samples = {}
    for taken in [dict(notes(folder, "seen", rank)) for rank in range(processes)]:
        for step, places in taken.items():
            steps[step] = sorted(steps.get(step, []) + places)
    return steps


def seconds(folder: Path) -> dict[str, float]:
    """How long a step and so on took, in the middle: until the next thing began."""
    times = notes(folder, "times", 0)
    spans: dict[str, list[float]] = {}
    for (what, begin), (_, end) in zip(times, times[1:], strict=False):
        spans.setdefault(what, []).append(end - begin)
    middle = {what: sorted(found)[len(found) // 2] for what, found in spans.items()}
    # A save is what goes before the writing and the writing.
    return {**middle, "save": middle["save"] + middle["write"], "run": times[-1][1] - times[0][1]}


def moment(kind: str, whole: Whole, processes: int, luck: random.Random) -> dict[str, Any]:
    """A random moment in something of that kind."""
    calls = {"step": STEPS, "save": 4, "evaluation": 4, "data": STEPS, "run": 1}
    longest = whole.seconds[kind] * (2 if kind == "run" else 1.1)
    return {
        "in": kind, "call": luck.randint(1, calls[kind]), "after": luck.uniform(0, longest),
        "rank": luck.randrange(processes),
    }  # fmt: skip


def check(whole: Whole, place: Path, processes: int, **job: Any) -> None:
    """Kill a training, give the command again, and compare."""
    death = job.pop("death")
    for hurry in range(5):  # on a machine that is less busy now, the moment may come when all is over
        folder = place / f"run-{hurry}"
        statuses = train(folder, processes, **job, death={**death, "after": death["after"] / 2**hurry})
        if statuses[death["rank"]] != 0:
            break
    assert statuses[death["rank"]] == -9, (statuses, log(folder))
    assert train(folder, processes, **job) == [0] * processes, log(folder)
    assert left(folder) == whole.left
    found = samples(folder, processes)
    assert found == whole.samples
    assert sorted(place for places in found.values() for place in places) == list(range(STEPS * BATCH))


@pytest.mark.parametrize(("kind", "call", "processes"), [("save", 2, 1), ("evaluation", 1, 1), ("step", 8, 2)])
def test_a_training_that_is_killed_ends_the_same(
    wholes: dict[int, Whole], tmp_path: Path, kind: str, call: int, processes: int
) -> None:
    whole = wholes[processes]
    death = {"in": kind, "call": call, "after": whole.seconds[kind] / 2, "rank": processes - 1}
    check(whole, tmp_path, processes, death=death)


def test_without_any_steps_to_save_at_the_clock_saves(wholes: dict[int, Whole], tmp_path: Path) -> None:
    words = ["save_every=null", "eval_every=4", "save_minutes=0.0001"]
    death = {"in": "step", "call": 9, "after": 0, "rank": 1}
    check(wholes[2], tmp_path, 2, death=death, words=words)
    (resumed,) = re.findall(r"resuming from .*step-(\d+)", log(tmp_path / "run-0"))
    assert 0 < int(resumed) < 9, "the clock of one process, and the same step on both"


def test_a_training_that_is_stopped_goes_from_two_processes_to_one_and_back(tmp_path: Path) -> None:
    words = ["model.residual_dropout=0", "ema_decay=0.9"]
    assert train(tmp_path / "alone", 1, words=words) == [0]
    for processes, step in ((2, 4), (1, 3)):
        # One process is told, all stop.
        death = {"in": "step", "call": step, "after": 0, "rank": 0, "signal": signal.SIGTERM}
        assert train(tmp_path / "run", processes, words=words, death=death) == [143] * processes
    assert train(tmp_path / "run", 2, words=words) == [0, 0]
    assert log(tmp_path / "run").count("; the same command resumes from there") == 2
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["resumed"] == [4, 7] and record["device"]["processes"] == 2
    alone, found = (read_metrics(tmp_path / name) for name in ("alone", "run"))
    assert len(alone) == len(found)
    for expected, line in zip(alone, found, strict=True):
        assert line == pytest.approx(expected, abs=1e-5), (expected, line)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("number", range(20))
def test_no_moment_is_a_bad_one_to_be_killed(
    wholes: dict[int, Whole], tmp_path: Path, number: int, processes: int
) -> None:
    luck = random.Random(f"{number} of {processes}")
    death = moment(KINDS[number % len(KINDS)], wholes[processes], processes, luck)
    words = ["async_save=true"] if number % 2 else []
    # The card and the code of the model are written at the end of a run alone.
    check(wholes[processes], tmp_path, processes, death=death, words=words, completed=death["in"] == "run")


@pytest.mark.slow
def test_torchrun_starts_again_what_was_killed(wholes: dict[int, Whole], tmp_path: Path) -> None:
    """Two of three attempts lose a process; nobody gives a folder, and all find the same."""
    folder = tmp_path / "run"
    deaths = [{"in": "step", "call": 8, "after": 0, "rank": 1}, {"in": "save", "call": 1, "after": 0, "rank": 0}]
    job = {"folder": str(folder), "processes": 2, "out": None, "deaths": deaths}
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "2"]
    done = subprocess.run(
        [sys.executable, *launch, WORKER, json.dumps(job)], cwd=tmp_path, capture_output=True, text=True, timeout=900,
        env={**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (made,) = (tmp_path / "runs").iterdir()
    assert done.stderr.count("resuming from") == 2
    assert left(made) == wholes[2].left and samples(folder, 2) == wholes[2].samples
