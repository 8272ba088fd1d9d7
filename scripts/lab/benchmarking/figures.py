"""Draw how many times as fast every contender is, by workload."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from qkv.scripts.lab.benchmarking.report import THEIRS, in_order

HEIGHT, WIDTH = 0.32, 9.0


def draw(record: dict[str, Any], path: Path) -> None:
    """Draw medians of ratios with their ranges, a row for each workload and a colour for each contender."""
    workloads = {name: each for name, each in in_order(record["workloads"]).items() if THEIRS in each["contenders"]}
    names = sorted({name for workload in workloads.values() for name in workload["contenders"]} - {THEIRS})
    figure = Figure(figsize=(WIDTH, 1.6 + HEIGHT * len(workloads)), layout="constrained")
    axis = figure.subplots()
    for place, name in enumerate(names):
        points = [
            (row + 0.6 * (place / max(len(names) - 1, 1) - 0.5), *workload["contenders"][name]["times_as_fast"])
            for row, workload in enumerate(workloads.values())
            if name in workload["contenders"]
        ]
        heights, least, middle, most = zip(*points, strict=True)
        left = [one - other for one, other in zip(middle, least, strict=True)]
        right = [one - other for one, other in zip(most, middle, strict=True)]
        axis.errorbar(middle, heights, xerr=[left, right], fmt="o", markersize=4, linewidth=1, label=name)
    axis.axvline(1, color="0.5", linewidth=1, linestyle=":")
    axis.set(yticks=range(len(workloads)), yticklabels=[*workloads], xscale="log", title=f"times as fast as {THEIRS}")
    axis.set_xticks(ticks := [0.25, 0.5, 1, 2, 4], [f"{tick:g}" for tick in ticks], minor=False)
    axis.minorticks_off()
    axis.invert_yaxis()
    axis.grid(alpha=0.3)
    if names:
        figure.legend(loc="outside lower center", ncols=4, fontsize=8)
    figure.savefig(path, dpi=110)
