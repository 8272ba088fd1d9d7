"""Time workloads against what people would use instead: the same weights, equal results, laps in turns."""

import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from qkv.modeling.conversion.files import write_json
from qkv.scripts.benchmarking import run as measuring
from qkv.scripts.benchmarking.contenders import CONTENDERS, chosen_contenders, stock_model
from qkv.scripts.benchmarking.equality import UnequalError
from qkv.scripts.benchmarking.loading import measure_loading
from qkv.scripts.benchmarking.machine import describe
from qkv.scripts.benchmarking.report import columns, page
from qkv.scripts.benchmarking.run import Settings
from qkv.scripts.benchmarking.workloads import STEPS, Workload, chosen, read_workloads
from qkv.scripts.common.environment import commit, public_command, versions
from qkv.scripts.common.extras import require
from qkv.scripts.common.files import RECORD, write_atomically
from qkv.scripts.common.phases import phase, say
from qkv.scripts.common.tables import print_columns, print_table
from qkv.scripts.training.progress import progress_display


def run(arguments: Namespace) -> None:
    """Measure, print tables, write the record and the page."""
    if arguments.list:
        show_list()
        return
    logging.set_verbosity_error()  # of stock classes it says what everybody is used to
    workloads = read_workloads()
    names, settings = chosen(arguments.workloads, [*workloads]), read_settings(arguments)
    before = earlier(arguments.page) if arguments.page else {}
    with phase("measuring what this machine can do"):
        record = provenance(arguments, settings)
    check_same_machine(before, record, arguments.page)
    record["workloads"] = before.get("workloads", {})
    failures = []
    with progress_display("laps", laps(names, settings), is_main=True, unit="lap") as shown:
        report = Reporter(shown.update)
        for name in names:
            report.workload = name
            try:
                measured = measure(workloads[name], settings, record["machine"], report)
            except UnequalError as error:
                failures.append(f"{name}: {error}")
                continue
            record["workloads"][name] = measured | {"rounds": settings.rounds, "commit": record["commit"]}
            write(record, arguments)
    show(record, names)
    if failures:
        raise RuntimeError("; ".join(failures))


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
    return Settings(names, arguments.rounds, arguments.seed, device, getattr(torch, precision))


def provenance(arguments: Namespace, settings: Settings) -> dict[str, Any]:
    """Return what the measurements came from."""
    return {
        "command": public_command(arguments.words),
        "seed": settings.seed,
        "commit": commit(),
        "versions": versions(),
        "machine": describe(settings.device, settings.dtype),
    }


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


class Reporter:
    """Count laps, and say whose they are."""

    def __init__(self, update: Callable[[int, str], None]) -> None:
        self.update, self.done, self.workload = update, 0, ""

    def __call__(self, contender: str, laps: int) -> None:
        self.done += laps
        self.update(self.done, f"{self.workload}, {contender}")


def laps(names: list[str], settings: Settings) -> int:
    """Return how many laps there are, those of the warm-up among them."""
    loading = sum(name.startswith("load") for name in names)
    return (settings.rounds + 1) * (len(settings.contenders) * (len(names) - loading) + 3 * loading)


def measure(workload: Workload, settings: Settings, machine: dict[str, Any], report: Reporter) -> dict[str, Any]:
    """Return the record of a workload."""
    if workload.step in ("load", "load again"):
        stock = stock_model(workload, settings.seed, torch.device("cpu"), torch.float32)
        return measure_loading(workload, stock, settings.rounds, report)
    return measuring.measure(workload, settings, machine, report)


def write(record: dict[str, Any], arguments: Namespace) -> None:
    """Write what is asked for, after every workload, so that nothing measured is lost."""
    if arguments.json:
        write_json(arguments.json, record)
    if arguments.page:
        from qkv.scripts.benchmarking.figures import draw

        arguments.page.mkdir(parents=True, exist_ok=True)
        write_json(arguments.page / RECORD, record)
        write_atomically(arguments.page / "README.md", page(record))
        draw(record, arguments.page / "times.png")


def show(record: dict[str, Any], names: list[str]) -> None:
    """Print a table for each workload, and who is absent."""
    for name in names:
        if workload := record["workloads"].get(name):
            print_columns(name, columns(workload), "times as fast as transformers: median of rounds (range)")
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
