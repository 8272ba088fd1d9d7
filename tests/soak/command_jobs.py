"""A command of qkv in a process that was forked for it, and what disturbs it there."""

import io
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import datasets
import disturbances
import torch
from accelerate.state import AcceleratorState, GradientState
from PIL import Image
from tqdm import tqdm

import checkout  # noqa: F401  makes qkv importable
import own_runs
import stock_folders
from qkv.scripts import cli, convert, evaluate, predict, publish, sweep, train  # noqa: F401  imported once for all
from qkv.scripts.data.corpus import Corpus
from qkv.scripts.example_data import digits
from qkv.scripts.tasks import registry
from qkv.scripts.training import run
from recipes import STAND_INS

# What takes most of the time of a tiny training: drawing, and all 1,797 digits.
run.draw_curve = lambda lines, path, kept: Image.new("RGB", (1, 1)).save(path)
bundled = digits.load_digits()
FEW = type(bundled)(**bundled | {name: bundled[name][:300] for name in ("data", "images", "target")})
digits.load_digits = lambda: FEW
# For the manuals, which would have to be fetched.
registry.EXAMPLE_DATA[Corpus].update(STAND_INS)


def warm_up() -> None:
    """Do once what commands keep for the next one in their process: modules, the code of models, patterns, templates.

    No thread may be left that was not there before: a child would have none of them.
    """
    before = len(os.listdir("/proc/self/task"))
    tqdm.monitor_interval, os.environ["TOKENIZERS_PARALLELISM"] = 0, "false"
    small = ["max_steps=1", "model.hidden_size=16", "model.num_hidden_layers=1"]
    with TemporaryDirectory() as name, redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said:
        folder = Path(name)
        datasets.config.HF_DATASETS_CACHE = folder / "cache"
        table, stock = own_runs.data("classes", folder / "table"), stock_folders.gpt2(folder / "stock")
        for words in (
            ("train", "digits", f"out={folder / 'digits'}", *small),
            ("train", table, f"out={folder / 'run'}", *own_runs.KINDS["classes"]),
            ("publish", folder / "run", folder / "published"),
            ("convert", stock, folder / "converted"),
        ):
            assert cli.main(list(map(str, words))) == 0, said.getvalue()
    del os.environ["TOKENIZERS_PARALLELISM"]
    AcceleratorState._reset_state(reset_partial_state=True)  # which says that there is one process
    GradientState._reset_state()
    assert len(os.listdir("/proc/self/task")) == before


warm_up()


def disturb(job: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    """Let happen what the job says; what is returned tells what did."""
    folder, rank = Path(job["folder"]), int(os.environ.get("RANK", 0))
    if rank != job.get("rank", 0):
        return dict
    if job.get("full_from"):
        writes = disturbances.fill_disk(folder, job["full_from"])
    elif "after" in job and not job.get("write"):
        disturbances.die_after(job["after"])
        return dict
    else:
        writes = disturbances.die_at_write(folder, job.get("write", 0), job.get("after", 0.0))
    return lambda: {"writes": writes.count}


def main(text: str) -> int:
    """Do the job; where it is asked for, leave a note of how long it took and how often it wrote."""
    job = json.loads(text)
    torch.set_num_threads(1)
    datasets.config.HF_DATASETS_CACHE = Path(f"{job['folder']}-cache")
    os.chdir(job["folder"])  # so that names in records are the same everywhere
    began, told = time.monotonic(), disturb(job)
    status = cli.main(job["words"])
    if (note := job.get("note")) and int(os.environ.get("RANK", 0)) == 0:
        Path(note).write_text(json.dumps({"seconds": time.monotonic() - began, **told()}))
    sys.stdout.flush()
    return status
