"""Evaluate a model on the test split of its run or on a table: metrics with intervals, tables of rows, pictures."""

from argparse import Namespace
from datetime import datetime
from pathlib import Path
from typing import Any

from qkv.scripts.common.environment import commit, public_command, versions, without_folder
from qkv.scripts.common.files import check_empty, staged
from qkv.scripts.common.phases import phase
from qkv.scripts.common.tables import format_metric, print_table
from qkv.scripts.prediction.bootstrap import intervals
from qkv.scripts.prediction.comparison import compare, conclusion
from qkv.scripts.prediction.evaluated_data import own_test, table_test
from qkv.scripts.prediction.evaluation import Evaluation, calibration_error, evaluate_rows
from qkv.scripts.prediction.report import is_classification, write_report
from qkv.scripts.prediction.source import Source, open_source
from qkv.scripts.tasks.task import Task

RESAMPLES, SLOW_RESAMPLES = 1000, 200  # the second where each takes long: COCO's average precision


def run(arguments: Namespace) -> None:
    """Evaluate, write the folder, and print the metrics with their intervals."""
    trusted = {"trust_remote_code": arguments.trust_remote_code}
    source = open_source(arguments.source, arguments.revision, **trusted)
    other = open_source(arguments.against, **trusted) if arguments.against else None
    if other and other.task != source.task:
        raise ValueError(f"{source.name} is for {source.task} and {other.name} for {other.task}; compare two of a task")
    folder = arguments.out or default_folder(source, arguments.input)
    check_empty(folder)
    options, tasks = arguments.options, [test_of(each, arguments) for each in (source, other) if each]
    evaluation, task = evaluate_rows(source, tasks[0]), tasks[0]
    resamples = options.get("resamples", SLOW_RESAMPLES if "average_precision" in task.metrics else RESAMPLES)
    facts = measured(evaluation, resamples, options.get("seed", 0))
    if other:
        compared = compare(evaluation, evaluate_rows(other, tasks[1]), resamples, facts["seed"])
        facts["against"] = {"model": without_folder(other.name), **compared}
    known = {"command": public_command(arguments.words), "model": without_folder(source.name), "task": source.task,
             "data": {"name": task.data.name if arguments.input is None else without_folder(arguments.input),
                      "sha256": task.fingerprint(), "skipped": len(task.data.invalid_records.skipped)}}  # fmt: skip
    with staged(folder) as made:
        names = write_report(made, evaluation, known | facts | {"versions": versions(), "commit": commit()})
    title = f"{source.name} on {len(evaluation.rows):,} rows, with 95 % intervals of {resamples:,} resamples"
    print_table(title, {name: shown(name, own) for name, own in facts["metrics"].items()})
    if other:
        differences = facts["against"]["differences"]
        print_table(f"minus {other.name}", {name: shown(name, own) for name, own in differences.items()})
        print(conclusion(facts["against"]))
    print(f"{folder}: {', '.join(names)}")


def test_of(source: Source, arguments: Namespace) -> Task:
    """Return the rows that a model is evaluated on, with the model loaded."""
    options = arguments.options
    task = own_test(source, options) if arguments.input is None else table_test(arguments.input, source, options)
    with phase(f"loading {source.name}"):
        _ = source.model
    return task


def default_folder(source: Source, given: str | None) -> Path:
    """Return a new folder in that of the model, or here for one of the Hub."""
    what = "test" if given is None else Path(given).stem
    here = Path(source.name) if Path(source.name).is_dir() else Path()
    return here / f"evaluation-{what}-{datetime.now():%Y%m%d-%H%M%S}"


def measured(evaluation: Evaluation, resamples: int, seed: int) -> dict[str, Any]:
    """Return the metrics with their intervals, and how these were made."""
    ranges = intervals(evaluation, resamples, seed)
    metrics: dict[str, dict[str, Any]] = {
        name: {"value": value, "interval": ranges.get(name)} for name, value in evaluation.metrics().items()
    }
    if is_classification(evaluation):
        rows = evaluation.rows
        error = calibration_error([row["score"] for row in rows], [row["correct"] for row in rows])
        metrics["calibration_error"] = {"value": error, "interval": None}
    return {"metrics": metrics, "rows": len(evaluation.rows), "resamples": resamples, "seed": seed}


def shown(name: str, own: dict[str, Any]) -> str:
    """Return a metric with its interval."""
    value = format_metric(name, own["value"])
    if own["interval"] is None:
        return value
    low, high = (format_metric(name, bound) for bound in own["interval"])
    return f"{value}  ({low.removesuffix(' %')} to {high.removesuffix(' %')})"
