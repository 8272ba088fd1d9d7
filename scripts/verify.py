"""Check a model's folder or Hub repository against its manifest, and print the report."""

from argparse import Namespace

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from qkv.scripts.common.files import write_json
from qkv.scripts.publishing.integrity.manifest import IntegrityError
from qkv.scripts.publishing.integrity.verification import examine

COLOURS = {"passed": "green", "FAILED": "red", "not run": "yellow", "warning": "yellow"}


def run(arguments: Namespace) -> None:
    """Check and print; IntegrityError, after the table, where something differs."""
    if arguments.json and not arguments.json.parent.is_dir():
        raise ValueError(f"there is no folder {arguments.json.parent} for --json; make it first")
    names = ("revision", "expect", "signed_by", "trust_remote_code")
    with Console(stderr=True).status("files") as status:
        options = {name: getattr(arguments, name) for name in names}
        report = examine(arguments.target, **options, step=status.update)
    table = Table("check", "result", Column("detail", overflow="fold"), title=Text(report.target))
    for row in report.rows:
        table.add_row(row.check, Text(row.result, COLOURS[row.result]), Text("\n".join(row.findings) or row.detail))
    if arguments.json:
        names = ("check", "result", "findings", "detail")
        rows = [{name: getattr(row, name) for name in names} for row in report.rows]
        facts = {name: getattr(report, name) for name in ("target", "commit", "identity", "passed")}
        write_json(arguments.json, {**facts, "rows": rows})
    Console().print(table)
    if not report.passed:
        raise IntegrityError(report.sentence)
    print(report.sentence)
