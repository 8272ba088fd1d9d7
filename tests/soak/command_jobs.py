"""A command of qkv, or a training under Trainer, in a process that was forked for it, with what happens to it there."""

import hashlib
import io
import json
import os
import pickle
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cache
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
import qkv
import stock_folders
import tiny_training
from qkv.scripts import cli, convert, evaluate, predict, publish, sweep, train  # noqa: F401  imported once for all
from qkv.scripts.data.corpus import Corpus
from qkv.scripts.example_data import digits
from qkv.scripts.publishing.export import flatten
from qkv.scripts.tasks import registry
from qkv.scripts.training import run
from qkv.scripts.training.memory.step_plan import StepPlan
from recipes import STAND_INS

# What takes most of the time of a tiny training: drawing, the steps of a copy that are timed before, all 1,797 digits.
run.draw_curve = lambda lines, path: Image.new("RGB", (1, 1)).save(path)
run.plan_steps = StepPlan
bundled = digits.load_digits()
FEW = type(bundled)(**bundled | {name: bundled[name][:300] for name in ("data", "images", "target")})
digits.load_digits = lambda: FEW
# For the manuals, which would have to be fetched.
registry.EXAMPLE_DATA[Corpus].update(STAND_INS)

KEPT = TemporaryDirectory()  # of the process that is forked
flattened = flatten.flattened


@cache
def kept_code(classes: tuple[tuple[str, type], ...], unused: frozenset[str]) -> flatten.FlatCode:
    """The code of classes, which takes half a second to flatten: what an earlier command has left, or left for later ones.

    A command that may not write so much, or is killed, leaves none.
    """
    named = repr([[(auto, owner.__name__) for auto, owner in classes], sorted(unused)])
    path = Path(KEPT.name, hashlib.sha256(named.encode()).hexdigest())
    if path.is_file():
        return pickle.loads(path.read_bytes())
    code, part = flattened(classes, unused), path.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        part.write_bytes(pickle.dumps(code))
        part.rename(path)
    return code


flatten.flattened = kept_code


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


def newest_complete(folder: Path) -> str | None:
    """The newest checkpoint of Trainer whose last file is whole: Trainer writes them in place."""
    found = []
    for path in folder.glob("checkpoint-*/trainer_state.json"):
        try:
            found.append((json.loads(path.read_text())["global_step"], str(path.parent)))
        except ValueError:
            continue
    return max(found)[1] if found else None


def under_trainer(folder: Path) -> int:
    """A training under Trainer, from its newest complete checkpoint, as its documentation has it."""
    from transformers import Trainer, TrainingArguments, set_seed

    set_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_labels": 3}
    config = qkv.QkvImageEncoderConfig(image_size=4, patch_size=2, num_channels=1, residual_dropout=0.2, **shape)
    images = tiny_training.task().train.columns
    rows = [{name: values[index] for name, values in images.items()} for index in range(len(images["labels"]))]
    arguments = TrainingArguments(
        str(folder), max_steps=12, per_device_train_batch_size=4, save_steps=2, logging_steps=2, report_to="none",
        use_cpu=True, disable_tqdm=True, save_total_limit=2,
    )  # fmt: skip
    model = qkv.QkvImageEncoderForImageClassification(config)
    trainer = Trainer(model=model, args=arguments, train_dataset=rows)
    trainer.train(resume_from_checkpoint=newest_complete(folder))
    trainer.save_model(str(folder / "final"))
    return 0


def do(job: dict[str, Any]) -> int:
    """Do what the job says."""
    if job.get("trainer"):
        return under_trainer(Path(job["folder"]))
    return cli.main(job["words"])


def disturb(job: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    """Let happen what the job says; what is returned tells what did."""
    folder, rank = Path(job["folder"]), int(os.environ.get("RANK", 0))
    if rank != job.get("rank", 0):
        return dict
    if "clock" in job:
        clocks = disturbances.JumpingClocks(job["clock"])
        return lambda: {"jumps": clocks.jumps}
    if "limit" in job:
        disturbances.limit_files(job["limit"])
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
    if later := job.get("later"):
        return together(job, later)
    began, told = time.monotonic(), disturb(job)
    status = do(job)
    if (note := job.get("note")) and int(os.environ.get("RANK", 0)) == 0:
        Path(note).write_text(json.dumps({"seconds": time.monotonic() - began, **told()}))
    sys.stdout.flush()
    return status


def together(job: dict[str, Any], later: list[float]) -> int:
    """Do a job in several processes, each so many seconds after it began, and leave a note of how each ended."""
    children = []
    for number, seconds in enumerate(later):
        child = os.fork()
        if not child:
            status = 99
            try:
                log = os.open(f"{job['folder']}-log-{number}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(log, 1), os.dup2(log, 2)
                time.sleep(seconds)
                status = do(job)
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        children.append(child)
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    Path(job["note"]).write_text(json.dumps(ended))
    return 0
