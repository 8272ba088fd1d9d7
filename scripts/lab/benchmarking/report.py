"""Tables and the page of a record, in which every number is the record's."""

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from qkv.scripts.common.tables import scaled
from qkv.scripts.common.templates import render
from qkv.scripts.lab.benchmarking.contenders import CONTENDERS, OURS, THEIRS
from qkv.scripts.lab.benchmarking.timing import ratios
from qkv.scripts.lab.benchmarking.work import least_seconds
from qkv.scripts.lab.benchmarking.workloads import read_workloads

Record = dict[str, Any]


def columns(workload: Record, machine: Record) -> list[dict[str, str]]:
    """Return a line for every contender of a workload, the fastest first."""
    contenders = workload["contenders"]
    lines = []
    for name in sorted(contenders, key=lambda name: median(contenders[name]["seconds"])):
        own = contenders[name]
        lines.append(
            {
                "contender": name,
                "median": duration(median(own["seconds"])),
                "times as fast": spread(own["times_as_fast"]),
                **{key: own[key] for key in ("attention", "dtype") if key in own},
                "tokens/s": rate(workload, own),
                "of limit": share(workload, own, machine),
                **utilisation(workload, own, machine),
                "memory": scaled(own["peak_bytes"], "B") if "peak_bytes" in own else "",
                "differs by": f"{max(own['differences'].values()):.1g}" if own.get("differences") else "",
            }
        )
    return lines


def short(lines: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the columns that a screen has room for."""
    return [{name: line[name] for name in line if name not in ("tokens/s", "differs by")} for line in lines]


def in_order(workloads: Mapping[str, Record]) -> dict[str, Record]:
    """Return workloads in the order of their table; a file has them by name."""
    known = [*read_workloads()]
    return {name: workloads[name] for name in sorted(workloads, key=lambda name: (*known, name).index(name))}


def spread(values: list[float]) -> str:
    """Format the median of ratios with the least and the most."""
    least, middle, most = values
    return f"{middle:.2f} ({least:.2f} to {most:.2f})"


def duration(seconds: float) -> str:
    """Format seconds with three digits."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def rate(workload: Record, contender: Mapping[str, Any]) -> str:
    """Format the real tokens that a contender reads or writes in a second."""
    return scaled(workload["work"]["tokens"] / median(contender["seconds"]), "").strip() if "work" in workload else ""


def share(workload: Record, contender: Mapping[str, Any], machine: Record) -> str:
    """Format the time of the machine at its limits as a share of a contender's."""
    if "work" not in workload:
        return ""
    return f"{100 * least_seconds(workload['work'], machine) / median(contender['seconds']):.0f} %"


def utilisation(workload: Record, contender: Mapping[str, Any], machine: Record) -> dict[str, str]:
    """Return, on a GPU, the usual utilisations: of the FLOP/s that its maker tells, of the bandwidth measured."""
    if "driver" not in machine or "work" not in workload:
        return {}
    work, took = workload["work"], median(contender["seconds"])
    told = work.get("model_flops", 0) / took / machine["told_flops"] if "told_flops" in machine else 0
    read = work["bytes"] / took / machine["bandwidth_bytes"]
    first = f"{contender['first_seconds']:.0f} s" if "first_seconds" in contender else ""
    return {
        "MFU": f"{100 * told:.1f} %" if told else "",
        "MBU": f"{100 * read:.0f} %" if read else "",
        "first calls": first,
    }


def against_best(workload: Record) -> tuple[str, list[float]] | None:
    """Return the fastest form of transformers, and how many times as fast qkv is; None where qkv did not run."""
    contenders = workload["contenders"]
    if OURS not in contenders:
        return None
    forms = [name for name in contenders if name.startswith(THEIRS)]
    best = min(forms, key=lambda name: median(contenders[name]["seconds"]))
    return best, ratios(contenders[best]["seconds"], contenders[OURS]["seconds"])


def summary(record: Record) -> list[list[str]]:
    """Return a row for every workload: qkv against transformers, against its better form, and against the machine."""
    rows = []
    for name, workload in in_order(record["workloads"]).items():
        compared = against_best(workload)
        if compared is None:
            continue
        own, stock = workload["contenders"][OURS], workload["contenders"][THEIRS]
        memory = f"{own['peak_bytes'] / stock['peak_bytes']:.2f}" if "peak_bytes" in own else ""
        best, ratio = compared
        rows.append(
            [f"`{name}`", duration(median(own["seconds"])), spread(own["times_as_fast"]), f"{spread(ratio)}, {best}",
             share(workload, own, record["machine"]), memory]
        )  # fmt: skip
    return rows


def page(record: Record) -> str:
    """Return the page of a record."""
    machine = record["machine"]
    limits = {
        name: scaled(machine[name], unit) for name, unit in (("gemm_flops", "FLOP/s"), ("bandwidth_bytes", "B/s"))
    }
    tables = {name: columns(workload, machine) for name, workload in in_order(record["workloads"]).items()}
    due = {name: each for name, each in read_workloads().items() if each.device == machine.get("device", "cpu")}
    missing = [name for name in due if name not in tables]
    for name in sorted(due.keys() & tables):
        asked = {who for who, each in CONTENDERS.items() if each.asked and each.has(due[name])}
        missing += [f"{name} by {who}" for who in sorted(asked - record["workloads"][name]["contenders"].keys())]
    given = {"record": record, "summary": summary(record), "tables": tables, "limits": limits, "missing": missing}
    return render(Path(__file__).with_name("page.md.j2"), **given)
