"""Show results as tables: on a terminal, and in Markdown on cards and pages."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

# Metrics that are no share of anything.
PLAIN = (
    "loss",
    "perplexity",
    "bits_per_byte",
    "bits_per_pixel",
    "bits_per_event",
    "bleu",
    "chrf",
    "examples_per_second",
)
SECONDS = "seconds"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(name: str, value: float | None) -> str:
    """A metric for people: losses and the like as they are, shares in percent."""
    if value is None:
        return ""
    if name == SECONDS:
        return f"{value:.0f}"
    return f"{value:.4f}" if name in PLAIN else f"{100 * value:.2f} %"


def ranged(name: str, values: Sequence[float]) -> str:
    """The mean of a metric over some runs, and the least and greatest where there are several."""
    mean, least, greatest = (shown(name, value) for value in (sum(values) / len(values), min(values), max(values)))
    return mean if len(values) == 1 else f"{mean} ({least.removesuffix(' %')} to {greatest.removesuffix(' %')})"


def show(title: str, rows: Mapping[str, str]) -> None:
    """Print the rows as a table on standard output."""
    table = Table(title=title, show_header=False)
    table.add_column()
    # A path that is cut off is of no use.
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table)


def show_columns(title: str, lines: Sequence[Mapping[str, str]], legend: str) -> None:
    """Print lines that have the same columns as a table on standard output, as narrow as can be."""
    table = Table(title=title, caption=legend, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in lines[0]:
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        table.add_row(*line.values())
    Console().print(table)


def measures(record: dict[str, Any]) -> dict[str, str]:
    """How good the model is, beside what it is compared with, and what it cost."""
    rows = {}
    others = {"loaded without qkv": record["reload"]} if "reload" in record else {}
    others |= record.get("baselines", {})
    for split, metrics in record["metrics"].items():
        for name, value in metrics.items():
            rows[f"{split} {name}"] = shown(name, value)
            for other, found in others.items():
                if name in found[split]:
                    rows[f"{split} {name}, {other}"] = shown(name, found[split][name])
        if "reload" in record:
            rows[f"{split} logits, loaded without qkv"] = "equal bit by bit"
    time = record["time"]
    rows["parameters"] = f"{record['parameters']:,}"
    rows["CPU seconds"] = f"{time['cpu_s']:.0f} with start-up, {time['training_cpu_s']:.0f} in training"
    rows["wall seconds"] = f"{time['wall_s']:.0f} after start-up, {time['training_wall_s']:.0f} in training"
    return rows


def compared(comparison: dict[str, Any]) -> dict[str, str]:
    """How good each model is over all seeds, and what it cost."""
    models = comparison["models"]
    rows = {
        f"{split} {metric}, {source}": ranged(metric, found["metrics"][split][metric])
        for split in models["qkv"]["metrics"]
        for metric in models["qkv"]["metrics"][split]
        for source, found in models.items()
    }
    for source, found in models.items():
        rows[f"parameters, {source}"] = f"{found['parameters']:,}"
        rows[f"CPU seconds in training, {source}"] = ranged(SECONDS, found["training_cpu_s"])
    return rows


def files(folder: Path) -> dict[str, str]:
    """What the run folder holds, without what the operating system hides."""
    return {path.name: str(path) for path in sorted(folder.iterdir()) if not path.name.startswith(".")}
