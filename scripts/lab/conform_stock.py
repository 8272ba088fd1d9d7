"""Check the classes of transformers by `qkv conform`, and write the page of what was found."""

import io
import json
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import transformers
import yaml

from qkv.scripts.common.files import table, write_atomically, write_json
from qkv.scripts.conformance.report import conform
from qkv.scripts.conformance.table import WRONG

FOLDER = Path(__file__).parents[2] / "model_cards"
RECORD, PAGE = FOLDER / "CONFORM.json", FOLDER / "CONFORM.md"
VERDICTS = FOLDER / "CONFORM.yaml"
SHOWN = 600  # characters of a program's output
VERSIONS = {"transformers": transformers.__version__, "torch": torch.__version__}
INTRODUCTION = """\
# `qkv conform` on classes of transformers

{classes} classes, {checks} checks that applied, {seconds:.0f} seconds, transformers {transformers},
torch {torch}, CPU, random weights of a small size. Written by `python -m qkv.scripts.lab conform-stock --page` from
[`CONFORM.json`](CONFORM.json); the verdicts, by hand, are in [`CONFORM.yaml`](CONFORM.yaml).

{counts}

## Findings
"""


def run(arguments: Namespace) -> None:
    """Check the classes that the record lacks, or those that are named, and write the page with --page."""
    record = json.loads(RECORD.read_text("utf-8")) if RECORD.is_file() else {**VERSIONS, "classes": {}}
    if {name: record[name] for name in VERSIONS} != VERSIONS and not arguments.page:
        raise ValueError(f"{RECORD} is of other versions than {VERSIONS}; remove it, or install those")
    if not arguments.page:
        transformers.utils.logging.set_verbosity_error()
        for name in arguments.classes or [name for name in stock_classes() if name not in record["classes"]]:
            record["classes"][name] = checked(name)
            write_json(RECORD, record)
            print(name, *record["classes"][name]["wrong"], flush=True)
    write_atomically(PAGE, page(record))


def stock_classes() -> list[str]:
    """Return the classes to check."""
    rows = table(__file__)
    return [*(name for names in rows["known"].values() for name in names), *rows["others"]]


def checked(name: str) -> dict[str, Any]:
    """Check a class, run the program of each failure, and return what was found."""
    start = perf_counter()
    try:
        report = conform(name)
    except Exception as error:  # one that cannot be shrunk is a finding of its own, for the page
        return {
            "wrong": {"(building)": ["error", f"{type(error).__name__}: {error}"[:300]]},
            "counts": {},
            "programs": {},
        }
    seconds = round(perf_counter() - start, 1)
    wrong = {row.check: [row.status, row.reason] for row in report.rows if row.status in WRONG}
    limits = {row.check: row.reason for row in report.rows if row.status == "limit"}
    counts = Counter(row.status for row in report.rows)
    programs = {row.check: [row.program, printed(row.program)] for row in report.failures}
    return {
        "kind": report.kind,
        "seconds": seconds,
        "counts": counts,
        "wrong": wrong,
        "limits": limits,
        "programs": programs,
    }


def printed(program: str) -> str:
    """Run a program as its reader would, and return what it prints."""
    output = io.StringIO()
    try:
        with redirect_stdout(output), redirect_stderr(io.StringIO()):
            exec(compile(program, "program", "exec"), {"__name__": "program"})
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=output)
    finally:
        torch.set_grad_enabled(True)
        torch.compiler.set_stance("default")
    return output.getvalue()[:SHOWN]


def page(record: dict[str, Any]) -> str:
    """Return the page: counts, findings with their verdicts and programs, and classes without any."""
    classes = record["classes"]
    verdicts = yaml.safe_load(VERDICTS.read_text("utf-8")) if VERDICTS.is_file() else []
    total: Counter[str] = Counter()
    for row in classes.values():
        total.update(row["counts"])
    applied = sum(count for status, count in total.items() if status not in ("–",))
    counts = ", ".join(f"{status} {count}" for status, count in total.most_common())
    seconds = sum(row.get("seconds", 0) for row in classes.values())
    start = INTRODUCTION.format(
        classes=len(classes), checks=applied, seconds=seconds, counts=counts, **versions(record)
    )
    clean = sorted(name for name, row in classes.items() if not row["wrong"])
    lines = [start, *findings(classes, verdicts), "## Without a failure\n", ", ".join(clean) + ".\n"]
    return "\n".join(lines)


def versions(record: dict[str, Any]) -> dict[str, str]:
    """Return the versions of a record."""
    return {name: record[name] for name in VERSIONS}


def findings(classes: dict[str, Any], verdicts: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the text of each verdict with its classes and one program, then what has no verdict."""
    left = {(name, check) for name, row in classes.items() for check in row["wrong"]}
    for verdict in verdicts:
        found = sorted(each for each in left if each[1] in verdict["checks"] and each[0] in verdict["classes"])
        left -= set(found)
        if found:
            yield f"### {verdict['title']} ({verdict['verdict']})\n\n{verdict['says'].strip()}\n"
            yield from (f"- {name}, {check}: {': '.join(classes[name]['wrong'][check])}" for name, check in found)
            yield from shown_program(classes, found)
    if left:
        yield "### Not yet looked into\n"
        yield from (f"- {name}, {check}: {': '.join(classes[name]['wrong'][check])}" for name, check in sorted(left))
        yield ""


def shown_program(classes: dict[str, Any], found: list[tuple[str, str]]) -> Iterator[str]:
    """Yield the first program of some findings with its output."""
    for name, check in found:
        if check in classes[name]["programs"]:
            program, output = classes[name]["programs"][check]
            yield f"\n```text\n{program.strip()}\n```\n\nprints\n\n```text\n{output.strip()}\n```\n"
            return
    yield ""
