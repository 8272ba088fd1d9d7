"""Check a model's folder or Hub repository against its manifest, and print the report."""

from argparse import Namespace
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from qkv.modeling.conversion.files import write_json
from qkv.scripts.publishing.integrity.manifest import IntegrityError
from qkv.scripts.publishing.integrity.verification import Report, examine

COLOURS = {"passed": "green", "FAILED": "red", "not run": "yellow", "warning": "yellow"}


def run(arguments: Namespace) -> None:
    """Check and print; IntegrityError, after the table, where something differs."""
    if arguments.json and not arguments.json.parent.is_dir():
        raise ValueError(f"there is no folder {arguments.json.parent} for --json; make it first")
    console = Console(stderr=True)
    with console.status("files") as status:
        report = examine(
            arguments.target,
            revision=arguments.revision,
            expect=arguments.expect,
            signed_by=arguments.signed_by,
            trust_remote_code=arguments.trust_remote_code,
            step=status.update,
        )
    if arguments.json:
        write_json(arguments.json, summary(report))
    Console().print(table(report))
    if not report.passed:
        raise IntegrityError(report.sentence)
    print(report.sentence)


def table(report: Report) -> Table:
    """Return the report as a table."""
    shown = Table("check", "result", Column("what", overflow="fold"), title=Text(report.name))
    for row in report.rows:
        what = "\n".join(row.findings) or row.detail
        shown.add_row(row.check, Text(row.result, COLOURS[row.result]), Text(what))
    return shown


def summary(report: Report) -> dict[str, Any]:
    """Return the report as JSON values."""
    rows = [
        {"check": row.check, "result": row.result, "findings": row.findings, "detail": row.detail}
        for row in report.rows
    ]
    names = {"target": report.target, "commit": report.commit, "identity": report.identity}
    return {**names, "passed": report.passed, "rows": rows}
