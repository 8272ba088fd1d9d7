"""Evaluate a model on the test split of its run or on a table: metrics with intervals, rows, a confusion matrix."""

import json
from argparse import Namespace
from collections import Counter
from datetime import datetime
from pathlib import Path
from sys import intern
from typing import Any

from matplotlib.figure import Figure
from sklearn.metrics import ConfusionMatrixDisplay

from qkv.scripts.common.environment import commit, public_command, versions, without_folder
from qkv.scripts.common.files import check_empty, staged, write_atomically
from qkv.scripts.common.phases import phase, say
from qkv.scripts.common.tables import format_metric, print_table
from qkv.scripts.data.read_report import counted
from qkv.scripts.data.splits.seen import USED, used_in
from qkv.scripts.data.tokenization import truncated_sentence
from qkv.scripts.prediction.comparison import METHOD, compare, intervals
from qkv.scripts.prediction.evaluated_data import run_test, table_tests
from qkv.scripts.prediction.evaluation import Evaluation, evaluate_parts
from qkv.scripts.prediction.outputs import write_table
from qkv.scripts.prediction.source import Source, open_source
from qkv.scripts.tasks.class_scores import NAMES, Scores, class_scores

RESAMPLES, SLOW_RESAMPLES = 1000, 200  # the second where each takes long: COCO's average precision
MOST_CLASSES = 40  # of a confusion matrix that can still be read


def run(arguments: Namespace) -> None:
    """Evaluate, write the folder, and print the metrics with their intervals."""
    trusted, options = {"trust_remote_code": arguments.trust_remote_code}, arguments.options
    source = open_source(arguments.source, arguments.revision, **trusted, task=options.get("task"))
    other = open_source(arguments.against, **trusted) if arguments.against else None
    if other and other.task != source.task:
        raise ValueError(f"{source.name} is for {source.task} and {other.name} for {other.task}; compare two of a task")
    folder = arguments.out or default_folder(source, arguments.input)
    check_empty(folder)
    evaluation, *others = [evaluated(each, arguments) for each in (source, other) if each]
    task, seed = evaluation.task, options.get("seed", 0)
    resamples = options.get("resamples", SLOW_RESAMPLES if "average_precision" in task.metrics else RESAMPLES)
    title = f"{source.name} on {len(evaluation.rows):,} rows, with 95 % intervals"
    metrics = measured(title, evaluation, resamples, seed)
    facts = {"command": public_command(arguments.words), "model": without_folder(source.name), "task": source.task,
             "data": {"name": task.data.name if arguments.input is None else without_folder(arguments.input),
                      "sha256": evaluation.sha256, "skipped": len(task.data.invalid_records.skipped)},
             "metrics": metrics, "rows": len(evaluation.rows), "intervals": METHOD, "resamples": resamples,
             "seed": seed, "versions": versions(), "commit": commit()}  # fmt: skip
    facts |= details(evaluation, source, resamples, seed)
    if other:
        differences = compare(evaluation, others[0], resamples, seed)
        seen = used_in(other.folder, task.data.report)
        counts = seen and count_seen(seen, other.name)
        facts["against"] = {"model": without_folder(other.name), "differences": differences, "seen": counts}
        print_metrics(f"minus {other.name}", differences)
    with staged(folder) as made:
        write_report(made, evaluation, facts)
    print(folder)


def evaluated(source: Source, arguments: Namespace) -> Evaluation:
    """Evaluate a model on its test split or a table."""
    with phase(f"loading {source.name}"):
        _ = source.model
    given, options = arguments.input, arguments.options
    tasks = [run_test(source, options)] if given is None else table_tests(given, source, options)
    evaluation = evaluate_parts(source, tasks)
    task = evaluation.task
    if told := truncated_sentence(task.truncated):
        say(told)
    if skipped := task.data.invalid_records.skipped:
        left = counted(Counter(task.data.invalid_records.summary()["reasons"]))
        say(f"rows left out, which no metric counts: {left}; the first is row {skipped[0]['row']}")
    return evaluation


def measured(title: str, evaluation: Evaluation, resamples: int, seed: int) -> dict[str, dict[str, Any]]:
    """Return and print each metric with its interval."""
    ranges = intervals(evaluation, resamples, seed)
    metrics = {name: {"value": value, "interval": ranges.get(name)} for name, value in evaluation.metrics().items()}
    print_metrics(title, metrics)
    return metrics


def details(evaluation: Evaluation, source: Source, resamples: int, seed: int) -> dict[str, Any]:
    """Return and print the scores of each class, and the rows that the model was trained on; None where unknown."""
    task, seen = evaluation.task, used_in(source.folder, evaluation.task.data.report)
    if classes := class_scores([answer for own in evaluation.answers for answer in own], task.labels, task.metrics):
        print_table("class by class", {name: line_of(own) for name, own in [*classes.items()][:MOST_CLASSES]})
    facts = seen and count_seen(seen, source.name) | mark_seen(evaluation, seen, resamples, seed)
    return ({"by_class": classes} if classes else {}) | {"seen": facts}


def count_seen(seen: list[str], name: str) -> dict[str, Any]:
    """Count and print the evaluated rows that a model was trained on, and those that chose its step."""
    counts = {split: seen.count(split) for split in USED}
    if told := " and ".join(f"{count:,} of the {split} split" for split, count in counts.items() if count):
        say(f"{told} of {name} are among the {len(seen):,} rows, so metrics on all of them are too good for new data")
    return counts


def mark_seen(evaluation: Evaluation, seen: list[str], resamples: int, seed: int) -> dict[str, Any]:
    """Mark the rows that a model was trained on, and measure and print the others; empty where there are only those."""
    if len(seen) != len(evaluation.rows):  # a row holds parts of several texts
        return {}
    evaluation.rows.marks["seen_in"] = seen
    others = evaluation.of_rows([number for number, name in enumerate(seen) if not name])
    if len(others.rows) in (0, len(seen)):
        return {}
    return {"metrics of the others": measured(f"on the other {len(others.rows):,} rows", others, resamples, seed)}


def default_folder(source: Source, given: str | None) -> Path:
    """Return a new folder in that of the model, or here for one of the Hub."""
    name = f"evaluation-{'test' if given is None else Path(given).stem}-{datetime.now():%Y%m%d-%H%M%S}"
    return Path(source.name) / name if Path(source.name).is_dir() else Path(name)


def line_of(scores: Scores) -> str:
    """Return the scores of a class in words."""
    return ", ".join([f"n = {scores['count']:,}", *(f"{key} {format_metric(key, scores[key])}" for key in NAMES)])


def print_metrics(title: str, metrics: dict[str, dict[str, Any]]) -> None:
    """Print metrics with their intervals."""
    shown = {}
    for name, own in metrics.items():
        value, *bounds = (format_metric(name, each) for each in (own["value"], *(own["interval"] or ())))
        shown[name] = f"{value}  ({' to '.join(bound.removesuffix(' %') for bound in bounds)})" if bounds else value
    print_table(title, shown)


def write_report(folder: Path, evaluation: Evaluation, facts: dict[str, Any]) -> None:
    """Write the record, the rows and, for classes, the confusion matrix of an evaluation."""
    rows, labels = evaluation.rows, list(evaluation.task.labels)
    write_atomically(folder / "metrics.json", json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
    write_table(folder / "rows.csv", list(dict.fromkeys(name for row in rows for name in row)), lambda: rows)
    if evaluation.is_classification and len(labels) <= MOST_CLASSES:
        side = 2.5 + 0.45 * len(labels)
        figure = Figure(figsize=(side + 1, side), layout="constrained")
        ConfusionMatrixDisplay.from_predictions(
            [intern(row["reference"]) for row in rows], [intern(row["prediction"]) for row in rows], labels=labels,
            cmap="Blues", ax=figure.subplots(), colorbar=False, xticks_rotation="vertical",
        )  # fmt: skip
        figure.savefig(folder / "confusion.png", dpi=150)
