"""Check the classes of transformers by `qkv conform`, and write the page of findings."""

import json
import subprocess
import sys
from argparse import Namespace
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from qkv.scripts.common.environment import versions
from qkv.scripts.common.files import table, write_atomically, write_json
from qkv.scripts.common.templates import render
from qkv.scripts.conformance.report import conform

RECORD = Path(__file__).parents[2] / "model_cards" / "CONFORM.json"
PAGE = RECORD.with_suffix(".md")


def run(arguments: Namespace) -> None:
    """Check the classes that the record of these versions lacks, or those that are named, and write the page."""
    found = json.loads(RECORD.read_text("utf-8")) if RECORD.is_file() else {}
    if found.get("versions") != versions():
        found = {"versions": versions(), "classes": {}}
    missing = [name for names in table(__file__).values() for name in names if name not in found["classes"]]
    for name in arguments.classes or missing:
        found["classes"][name] = checked(name)
        write_json(RECORD, found)
    write_atomically(PAGE, render(Path(__file__).with_suffix(".md.j2"), verdicts=table(str(PAGE)), **found))


def checked(name: str) -> dict[str, object]:
    """Check a class, run the program of each failure, and return the findings."""
    rows = [asdict(row) for row in conform(name).rows]
    for row in rows:
        if row["program"]:
            done = subprocess.run([sys.executable, "-P", "-c", row["program"]], capture_output=True, text=True)
            row["printed"] = done.stdout[:600]
    counts, seconds = Counter(row["status"] for row in rows), round(sum(row["seconds"] for row in rows), 1)
    return {"counts": counts, "seconds": seconds, "rows": [row for row in rows if row["status"] not in ("passed", "–")]}
