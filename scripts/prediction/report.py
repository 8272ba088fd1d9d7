"""Write what an evaluation gave: a record, tables of rows, and pictures for classes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from sklearn.metrics import ConfusionMatrixDisplay

from qkv.scripts.common.files import write_atomically
from qkv.scripts.data.examples import Record
from qkv.scripts.prediction.evaluation import Evaluation, reliability
from qkv.scripts.prediction.outputs import write_table

LISTED = 50  # rows in the tables of the worst and the most uncertain ones
MOST_CLASSES = 40  # of a confusion matrix that can still be read
METRICS = "metrics.json"


def write_report(folder: Path, evaluation: Evaluation, facts: dict[str, Any]) -> list[str]:
    """Write all files of an evaluation, and return their names."""
    write_atomically(folder / METRICS, json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
    rows = evaluation.rows
    tables = {"rows.csv": rows, "worst.csv": worst(rows)}
    if all("score" in row for row in rows):
        tables["uncertain.csv"] = sorted(rows, key=lambda row: row["score"])[:LISTED]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    for name, own in tables.items():
        write_table(folder / name, columns, own)
    names = [METRICS, *tables]
    if is_classification(evaluation):
        if len(evaluation.labels) <= MOST_CLASSES:
            draw_confusion(rows, evaluation.labels, folder / "confusion.png")
            names.append("confusion.png")
        draw_reliability(rows, folder / "reliability.png")
        names.append("reliability.png")
    return names


def is_classification(evaluation: Evaluation) -> bool:
    """Tell whether each row has one of several classes."""
    rows = evaluation.rows
    return bool(evaluation.labels) and all(isinstance(row.get("prediction"), str) and "score" in row for row in rows)


def worst(rows: Sequence[Record]) -> list[Record]:
    """Return the rows with the largest loss, or without losses those that are wrong, the most certain ones first."""
    if all("loss" in row for row in rows):
        return sorted(rows, key=lambda row: -row["loss"])[:LISTED]
    return [row for row in sorted(rows, key=lambda row: -row.get("score", 0)) if not row.get("correct", True)][:LISTED]


def draw_confusion(rows: Sequence[Record], labels: Sequence[str], path: Path) -> None:
    """Draw how often each class was taken for each, by their numbers."""
    side = 2.5 + 0.45 * len(labels)
    figure = Figure(figsize=(side + 1, side), layout="constrained")
    axes = figure.subplots()
    ConfusionMatrixDisplay.from_predictions(
        [row["reference"] for row in rows], [row["prediction"] for row in rows], labels=list(labels), ax=axes,
        cmap="Blues", colorbar=False, xticks_rotation="vertical" if max(map(len, labels)) > 3 else "horizontal",
    )  # fmt: skip
    axes.set(xlabel="predicted", ylabel="true", title=f"{len(rows)} rows")
    figure.savefig(path, dpi=150)


def draw_reliability(rows: Sequence[Record], path: Path) -> None:
    """Draw the share of right rows by certainty, with the number of rows below."""
    bins = reliability([row["score"] for row in rows], [row["correct"] for row in rows])
    figure = Figure(figsize=(4.5, 5.5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    upper.plot([0, 1], [0, 1], color="grey", linestyle="--", linewidth=1)
    upper.plot([sure for sure, _, _ in bins], [right for _, right, _ in bins], marker="o")
    upper.set(ylabel="share of right rows", xlim=(0, 1), ylim=(-0.02, 1.02))
    lower.bar([sure for sure, _, _ in bins], [count for _, _, count in bins], width=0.04)
    lower.set(xlabel="certainty of the prediction", ylabel="rows")
    figure.savefig(path, dpi=150)
