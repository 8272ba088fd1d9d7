"""Run a workload: build its contenders, compare them, time them in turns."""

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from qkv.scripts.lab.benchmarking.attention import attention_of
from qkv.scripts.lab.benchmarking.batches import Inputs, batch
from qkv.scripts.lab.benchmarking.candidate import AbsentError, Candidate
from qkv.scripts.lab.benchmarking.contenders import CONTENDERS, THEIRS, candidate, stock_model
from qkv.scripts.lab.benchmarking.equality import UnequalError, check_equal, evidence, gradients
from qkv.scripts.lab.benchmarking.memory import peak_bytes
from qkv.scripts.lab.benchmarking.steps import step_of
from qkv.scripts.lab.benchmarking.timing import in_turns, ratios, seconds
from qkv.scripts.lab.benchmarking.work import work
from qkv.scripts.lab.benchmarking.workloads import Workload

Report = Callable[[str, int], None]


@dataclass(frozen=True)
class Settings:
    """The conditions of a measurement."""

    contenders: Sequence[str]
    rounds: int
    seed: int
    device: torch.device
    dtype: torch.dtype
    seconds: float = math.inf  # after which a workload starts no further round


def measure(workload: Workload, settings: Settings, report: Report) -> dict[str, Any]:
    """Return the record of a workload; `report` is told what is being done, and the laps it is worth."""
    if workload.dtype:
        settings = replace(settings, dtype=getattr(torch, workload.dtype))
    stock = stock_model(workload, settings.seed, settings.device, settings.dtype)
    inputs = {name: value.to(settings.device) for name, value in batch(workload, stock.config, settings.seed).items()}
    record: dict[str, Any] = {**workload.sizes, "work": work(stock, workload, inputs), "absent": {}, "contenders": {}}
    steps: dict[str, Callable[[], Any]] = {}
    compared = compare(workload, settings, stock, inputs, report)
    for name, result in compared.items():
        if isinstance(result, AbsentError):
            record["absent"][name] = str(result)
            report(name, settings.rounds + 1)
        else:
            steps[name] = step_of(workload, result[0].model, inputs, settings.dtype)
            record["contenders"][name] = {"differences": result[1], "first_seconds": result[2]}
    laps = in_turns(steps, settings.rounds, lambda name, step: timed(name, step, report), settings.seconds)
    record["reference"] = THEIRS if THEIRS in laps else next(iter(laps))
    for name, own in laps.items():
        figures = {"seconds": own, "times_as_fast": ratios(laps[record["reference"]], own)}
        figures |= {"attention": attention_of(steps[name]), "peak_bytes": peak_bytes(steps[name], settings.device)}
        record["contenders"][name] |= figures | {"dtype": str(settings.dtype).removeprefix("torch.")}
    del steps, compared, stock
    gc.collect()
    return record


def timed(name: str, step: Callable[[], Any], report: Report) -> float:
    """Return the seconds of a lap, and report it."""
    took = seconds(step)
    report(name, 1)
    return took


def contenders_of(workload: Workload, settings: Settings) -> list[str]:
    """Return who runs a workload, of the contenders that are asked for."""
    return [name for name in settings.contenders if CONTENDERS[name].has(workload)]


def compare(
    workload: Workload, settings: Settings, stock: Any, inputs: Inputs, report: Report
) -> dict[str, tuple[Candidate, dict[str, float], float] | AbsentError]:
    """Return every contender with its differences from the stock model and the seconds of its first calls, or why it is
    absent; those that are compiled are so in these calls."""
    wanted = (evidence(stock, workload, inputs, settings.dtype), gradients(stock))
    results: dict[str, tuple[Candidate, dict[str, float], float] | AbsentError] = {}
    for name in contenders_of(workload, settings):
        report(f"{name}: outputs and gradients", 0)
        began = time.perf_counter()
        try:
            taken = candidate(name, stock, workload)
            actual = evidence_of(name, taken, workload, inputs, settings.dtype)
        except AbsentError as absent:
            results[name] = absent
            continue
        first = time.perf_counter() - began
        results[name] = (taken, check_equal(name, taken, wanted, actual, settings.dtype), first)
    return results


def evidence_of(name: str, taken: Candidate, workload: Workload, inputs: Inputs, dtype: torch.dtype) -> Any:
    """Return what a contender computes; one that cannot be compiled here is absent."""
    try:
        return evidence(taken.model, workload, inputs, dtype)
    except UnequalError:
        raise
    except Exception as error:
        if not CONTENDERS[name].compiled:
            raise
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise AbsentError(f"it cannot be compiled here: {lines[0]}") from error
