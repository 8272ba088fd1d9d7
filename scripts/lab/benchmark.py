"""Time workloads against what people would use instead: the same weights, equal results, laps in turns."""

import json
import math
import warnings
from argparse import Namespace
from contextlib import suppress
from dataclasses import replace
from fnmatch import filter as matching
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from transformers.utils import logging

from qkv.scripts.common.environment import commit, public_command, versions
from qkv.scripts.common.extras import require
from qkv.scripts.common.files import RECORD, write_atomically, write_json
from qkv.scripts.common.phases import phase, say
from qkv.scripts.common.tables import print_columns, print_table
from qkv.scripts.lab.benchmarking import run as measuring
from qkv.scripts.lab.benchmarking.contenders import CONTENDERS, THEIRS, chosen_contenders, stock_model
from qkv.scripts.lab.benchmarking.equality import UnequalError
from qkv.scripts.lab.benchmarking.loading import MODULES, measure_loading
from qkv.scripts.lab.benchmarking.machine import describe
from qkv.scripts.lab.benchmarking.report import columns, page, short
from qkv.scripts.lab.benchmarking.run import Settings, contenders_of
from qkv.scripts.lab.benchmarking.workloads import STEPS, Workload, chosen, read_workloads

ROW_ON_GPU = 30.0  # seconds of laps: with what comes before them a workload takes 40


def run(arguments: Namespace) -> None:
    """Measure, print tables, write the record and the page."""
    if arguments.list:
        show_list()
        return
    # What libraries say of stock classes and of prototypes would stand between the lines of the progress bar.
    logging.set_verbosity_error()
    warnings.filterwarnings("ignore", module="torch|transformers")
    workloads = {name: with_batch(workload, arguments.batch) for name, workload in read_workloads().items()}
    settings = read_settings(arguments)
    fitting = [name for name, each in workloads.items() if arguments.workloads or each.device == settings.device.type]
    names = chosen(arguments.workloads, fitting)
    check_all_run(arguments.contenders, [workloads[name] for name in names])
    before = earlier(arguments.page) if arguments.page else {}
    with phase("measuring what this machine can do"):
        record = provenance(arguments, settings)
    check_same_machine(before, record, arguments.page)
    record = joined(before, record)
    failures = []
    for place, name in enumerate(names, start=1):
        try:
            measured = measure(f"{name} ({place} of {len(names)})", workloads[name], settings)
        except UnequalError as error:
            failures.append(f"{name}: {error}")
            continue
        rounds = min(len(own["seconds"]) for own in measured["contenders"].values())
        record["workloads"][name] = measured | {"rounds": rounds, "commit": record["commit"]}
        write(record, arguments)
        show(name, measured, record["machine"])
    if failures:
        raise RuntimeError("; ".join(failures))


def with_batch(workload: Workload, rows: int | None) -> Workload:
    """Return a workload with so many rows, its own without a number; ValueError for none."""
    if rows is None or workload.step.startswith("load"):
        return workload
    if rows < 1:
        raise ValueError(f"--batch={rows} must be at least 1")
    return replace(workload, batch=rows)


def read_settings(arguments: Namespace) -> Settings:
    """Return the conditions that the arguments ask for; ValueError for those that cannot be had."""
    if arguments.rounds < 1:
        raise ValueError(f"--rounds={arguments.rounds} measures nothing; use at least 1")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device=cuda needs an NVIDIA GPU, which torch does not see here; use --device=cpu")
    if arguments.page:
        require("matplotlib")
    device = torch.device(arguments.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    precision = arguments.dtype or ("float32" if device.type == "cpu" else "bfloat16")
    names = chosen_contenders(arguments.contenders)
    seconds = arguments.seconds or (math.inf if device.type == "cpu" else ROW_ON_GPU)
    return Settings(names, arguments.rounds, arguments.seed, device, getattr(torch, precision), seconds)


def check_all_run(contenders: list[str], workloads: list[Workload]) -> None:
    """Raise ValueError for a contender that is asked for and runs none of the workloads."""
    for name in contenders:
        if not any(CONTENDERS[each].has(workload) for each in matching(CONTENDERS, name) for workload in workloads):
            raise ValueError(f"{name} runs none of these workloads; benchmark --list names its workloads")


def provenance(arguments: Namespace, settings: Settings) -> dict[str, Any]:
    """Return what the measurements came from."""
    return {
        "command": public_command(arguments.words),
        "seed": settings.seed,
        "commit": commit(),
        "versions": versions() | library_versions(),
        "machine": describe(settings.device, settings.dtype),
    }


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that are contenders, of those that are installed."""
    numbers = {}
    for name in ("x-transformers", "timm"):
        with suppress(PackageNotFoundError):
            numbers[name] = version(name)
    return numbers


def earlier(folder: Path) -> dict[str, Any]:
    """Return the record of a page that was written before, or nothing."""
    path = folder / RECORD
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return record


def check_same_machine(before: dict[str, Any], now: dict[str, Any], folder: Path) -> None:
    """Raise ValueError where a record is of another machine or of other conditions."""
    for name in ("name", "threads", "dtype") if before else ():
        was, is_now = before["machine"][name], now["machine"][name]
        if was != is_now:
            raise ValueError(f"{folder}/{RECORD} was measured with {name} {was}, not {is_now}; name another folder")


def joined(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Return a record with the workloads of an earlier one; a machine's limit is the most that was seen of it."""
    machine = dict(now["machine"])
    for name in ("gemm_flops", "bandwidth_bytes") if before else ():
        machine[name] = max(machine[name], before["machine"][name])
    return now | {"machine": machine, "workloads": before.get("workloads", {})}


def measure(title: str, workload: Workload, settings: Settings) -> dict[str, Any]:
    """Return the record of a workload, and show how far its laps are, those of the warm-up among them."""
    loads = workload.step.startswith("load")
    runners = [*MODULES] if loads else contenders_of(workload, settings)
    with tqdm(desc=title, total=(settings.rounds + 1) * len(runners), unit="lap") as progress:

        def report(contender: str, laps: int) -> None:
            progress.set_postfix_str(contender, refresh=False)
            progress.update(laps)

        if not loads:
            return measuring.measure(workload, settings, report)
        stock = stock_model(workload, settings.seed, torch.device("cpu"), torch.float32)
        return measure_loading(workload, stock, settings.rounds, report)


def write(record: dict[str, Any], arguments: Namespace) -> None:
    """Write what is asked for, after every workload, so that nothing measured is lost."""
    if arguments.json:
        write_json(arguments.json, record)
    if arguments.page:
        from qkv.scripts.lab.benchmarking.figures import draw

        arguments.page.mkdir(parents=True, exist_ok=True)
        write_json(arguments.page / RECORD, record)
        write_atomically(arguments.page / "README.md", page(record))
        draw(record, arguments.page / "times.png")


def show(name: str, workload: dict[str, Any], machine: dict[str, Any]) -> None:
    """Print the table of a workload, and who is absent."""
    reference = workload.get("reference", THEIRS)
    print_columns(name, short(columns(workload, machine)), f"times as fast as {reference}: median of rounds (range)")
    for contender, reason in workload["absent"].items():
        say(f"{contender} is absent from {name}: {reason}")


def show_list() -> None:
    """Print workloads and contenders."""
    print_table("workloads", {name: line(workload) for name, workload in read_workloads().items()})
    print_table("contenders", {name: contender.about for name, contender in CONTENDERS.items()})


def line(workload: Workload) -> str:
    """Describe a workload in a line."""
    counts = {"batch": workload.batch, "length": workload.length, "new tokens": workload.new_tokens}
    shown = [f"{name} {count}" for name, count in counts.items() if count]
    real = [f"{100 * workload.real:.0f} % real"] if workload.real < 1 else []
    return ", ".join([f"{workload.model.official}: {STEPS[workload.step]}", *shown, *real])
