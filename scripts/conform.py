"""Check any transformers model for silent faults."""

from argparse import Namespace
from dataclasses import asdict

from transformers.utils import logging

from qkv.scripts.common.files import write_json
from qkv.scripts.conformance.outcomes import ConformanceError
from qkv.scripts.conformance.report import conform


def run(arguments: Namespace) -> None:
    """Print a line for each check and a program for each failure; ConformanceError after it if there is one."""
    if arguments.json and not arguments.json.parent.is_dir():
        raise ValueError(f"there is no folder {arguments.json.parent} for --json; make it first")
    logging.set_verbosity_error()
    names = ("only", "skip", "seed", "weights", "trust_remote_code", "revision")
    report = conform(arguments.source, **{name: getattr(arguments, name) for name in names})
    print(report)
    if arguments.json:
        write_json(arguments.json, asdict(report))
    if report.failures:
        failed = ", ".join(row.check for row in report.failures)
        raise ConformanceError(f"{report.model} fails {len(report.failures)} of {len(report.rows)} checks: {failed}")
