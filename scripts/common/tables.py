"""Tables and formatted metrics, in Markdown for cards and on the screen for commands."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

# Metrics that are not shares, and so not in percent.
PLAIN = "loss perplexity bits_per_byte bits_per_pixel bits_per_event mae rmse pearson spearman bleu chrf".split()
SECONDS = "seconds"


def format_metric(name: str, value: float | None) -> str:
    """Format a metric: shares in percent, losses and the like as plain numbers."""
    if value is None:
        return ""
    if name == SECONDS:
        return f"{value:.0f}"
    return f"{value:.4f}" if name.partition(" of ")[0] in PLAIN else f"{100 * value:.2f} %"


def format_range(name: str, values: Sequence[float]) -> str:
    """Format the mean of a metric over runs, with the range of several runs."""
    mean, least, greatest = (
        format_metric(name, value) for value in (sum(values) / len(values), min(values), max(values))
    )
    return mean if len(values) == 1 else f"{mean} ({least.removesuffix(' %')} to {greatest.removesuffix(' %')})"


def scaled(number: float, unit: str) -> str:
    """Format a number with its thousands as a letter."""
    number = float(f"{number:.3g}")  # 999.9 is a thousand
    power = min(int(math.log10(number) // 3), 6) if number >= 1 else 0
    return f"{number / 1000**power:.3g} {'kMGTPE'[power - 1] if power else ''}{unit}"


def print_table(title: str, rows: Mapping[str, str]) -> None:
    """Print names and values as a table on standard output."""
    table = Table(title=title or None, show_header=False)
    table.add_column()
    table.add_column(overflow="fold")  # a path that is cut off is of no use
    for name, value in rows.items():
        table.add_row(name, value)
    Console(markup=False, emoji=False).print(table)  # qkv[train] is no style, and a class :smile: no picture


def print_columns(title: str, lines: Sequence[Mapping[str, str]], legend: str, left: Sequence[str] = ()) -> None:
    """Print lines of equal columns as a narrow table on standard output; columns on the `left` may wrap."""
    table = Table(title=title or None, caption=legend, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in lines[0]:
        if name in left:
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        table.add_row(*line.values())
    Console(markup=False, emoji=False).print(table)


def run_rows(record: dict[str, Any]) -> dict[str, str]:
    """Return the rows of a run: its metrics beside the baselines', its size and its cost."""
    rows = {}
    for split, metrics in record["metrics"].items():
        for name, value in metrics.items():
            rows[f"{split} {name}"] = format_metric(name, value)
            for other, scores in record.get("baselines", {}).items():
                if name in scores[split]:
                    rows[f"{split} {name}, {other}"] = format_metric(name, scores[split][name])
        if split in record.get("reload", ()):
            rows[f"{split} logits, loaded without qkv"] = "equal bit by bit"
    time = record["time"]
    rows["parameters"] = f"{record['parameters']:,}"
    rows["CPU seconds"] = f"{time['cpu_s']:.0f} with start-up, {time['training_cpu_s']:.0f} in training"
    rows["wall seconds"] = f"{time['wall_s']:.0f} after start-up, {time['training_wall_s']:.0f} in training"
    return rows


def file_rows(folder: Path) -> dict[str, str]:
    """Return the files of a run folder by name, without hidden ones."""
    return {path.name: str(path) for path in sorted(folder.iterdir()) if not path.name.startswith(".")}
