"""Runs are read from their folders, finished or not, and listed by `qkv runs`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from qkv.scripts.cli import main
from qkv.scripts.common.run_folder import CHECKPOINTS, LOCK, METRICS, STATE
from qkv.scripts.runs.reading import find_runs

LINES = [
    {"step": 10, "loss": 2.0},
    {"step": 10, "split": "validation", "loss": 1.9, "accuracy": 0.25},
    {"step": 20, "loss": 1.0},
    {"step": 20, "split": "validation", "loss": 1.1, "accuracy": 0.5},
]
HOLD = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


def make_run(folder: Path, when: int = 0, finished: bool = True, **recipe: object) -> Path:
    """Make the folder of a run; one that is not finished has a checkpoint, from which the recipe is known."""
    (folder / CHECKPOINTS / "step-000020").mkdir(parents=True)
    fields = {"name": "digits", "max_steps": 40, "out": folder.name, "model": {}, **recipe}
    (folder / METRICS).write_text("".join(json.dumps(line) + "\n" for line in LINES))
    (folder / CHECKPOINTS / "step-000020" / STATE).write_text(json.dumps({"recipe": fields}))
    (folder / CHECKPOINTS / "step-000020" / METRICS).write_text("")
    record = {
        "recipe": fields,
        "steps": {"taken": 40},
        "metrics": {"validation": {"accuracy": 0.5, "loss": 1.1}, "test": {"accuracy": 0.75, "loss": 1.0}},
        "time": {"training_wall_s": 90.0},
        "parameters": 1000,
    }
    if finished:
        (folder / "record.json").write_text(json.dumps(record))
    for path in (folder / METRICS, folder / "record.json"):
        if path.exists():
            os.utime(path, (when, when))
    return folder


def test_a_finished_run_is_what_its_record_says(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    (run,) = find_runs([tmp_path])
    assert (run.state, run.step, run.recipe["max_steps"]) == ("finished", 40, 40)
    assert run.metrics["test"] == {"accuracy": 0.75, "loss": 1.0} and run.lines == LINES


def test_an_unfinished_run_is_what_it_has_logged_and_saved(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", finished=False, seed=3)
    (run,) = find_runs([tmp_path])
    assert (run.state, run.step, run.recipe["seed"]) == ("stopped", 20, 3)
    assert run.metrics == {"validation": {"accuracy": 0.5, "loss": 1.1}}
    lock = folder / CHECKPOINTS / LOCK
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout and holder.stdout.readline() == "locked\n"
        assert run.state == "running"
        holder.communicate()
    assert run.state == "stopped"


def test_a_run_without_a_checkpoint_has_no_recipe_yet(tmp_path: Path) -> None:
    (tmp_path / METRICS).write_text("")
    (run,) = find_runs([tmp_path])
    assert (run.recipe, run.step, run.metrics, run.state) == ({}, 0, {}, "stopped")


def test_runs_are_those_below_each_once_and_the_newest_first(tmp_path: Path) -> None:
    for when, name in enumerate(("a", "sweep/trial-001", "b"), 1):
        make_run(tmp_path / name, when)
    assert [run.folder.name for run in find_runs([tmp_path, tmp_path / "a"])] == ["b", "trial-001", "a"]


def test_a_table_a_figure_and_a_file_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    make_run(Path("runs/a"), 1, learning_rate=0.1)
    make_run(Path("runs") / ("b" * 60), 2, finished=False, learning_rate=0.2)
    assert main(["runs", "--out=all.svg", "--json=all.json"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert "stopped 20/40" in printed and "accuracy 75.00 %" in printed and "learning_rate=0.1" in printed
    assert Path("all.svg").read_text().startswith("<?xml")
    newest, oldest = json.loads(Path("all.json").read_text())
    assert (newest["state"], oldest["metrics"]["test"]["accuracy"]) == ("stopped", 0.75)
    assert main(["runs", "--last", "1"]) == 0 and "runs/a" not in capsys.readouterr().out


def test_a_list_imports_no_torch(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    code = f"import sys; from qkv.scripts.cli import main; main(['runs', {str(tmp_path)!r}]); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "there is no folder nowhere; qkv train digits out=runs/first makes a run"),
        (["ru"], "there is no folder ru; did you mean runs?"),
        (["runs/empty"], "runs/empty holds no run, which has a metrics.jsonl; qkv train"),
        (["runs", "--out=a.jpg"], "--out=a.jpg must end in one of .svg, .png, .pdf"),
        (["runs", "--last=0"], "--last=0 must be at least 1"),
        (["torn"], "torn/metrics.jsonl is damaged (Expecting value: line 1 column 1 (char 0)); move the run"),
        (["runs/odd"], "runs/odd/record.json is no record of a training (KeyError('recipe')); move it"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(Path("runs/a"))
    Path("runs/empty").mkdir()
    Path("runs/odd").mkdir()
    Path("runs/odd/record.json").write_text("{}")
    Path("torn").mkdir()
    Path("torn/metrics.jsonl").write_text("half a line\n")
    if "--" in words[-1]:
        Path("runs/odd/record.json").unlink()
    assert main(["runs", *words]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"qkv: {message}") and said.count("\n") == 1
