"""Show what qkv runs on, and what is slow or broken there, why, and how to mend it."""

import json
import shutil
from argparse import Namespace
from dataclasses import asdict

from huggingface_hub import constants

from qkv.scripts.common.environment import versions
from qkv.scripts.common.files import write_atomically
from qkv.scripts.common.phases import phase
from qkv.scripts.common.tables import print_table
from qkv.scripts.diagnosis.accelerators import (
    backend_rows,
    check_accelerators,
    check_attention,
    device_rows,
    try_attention,
)
from qkv.scripts.diagnosis.caches import check_caches, look_at_caches
from qkv.scripts.diagnosis.findings import Finding, spelled
from qkv.scripts.diagnosis.processor import check_processor, look_at_processor
from qkv.scripts.diagnosis.software import check_software, extra_rows


def run(arguments: Namespace) -> None:
    """Print tables and findings; RuntimeError where something is broken."""
    measure = not arguments.quick
    with phase("measuring this machine"):
        own, devices = look_at_processor(measure=measure), device_rows(measure=measure)
    attention = try_attention()
    with phase("counting what is in caches"):
        caches = look_at_caches()
    tables = {
        "versions": versions(),
        "processor": own.rows(),
        "accelerators": devices,
        "attention backends": backend_rows(attention.errors),
        "caches": {cache.name: cache.row() for cache in caches},
        "extras": extra_rows(),
    }
    findings = [
        *check_software(),
        *check_accelerators(),
        *check_attention(attention),
        *check_processor(own),
        *check_caches(caches, offline=constants.HF_HUB_OFFLINE),
    ]
    for title, rows in tables.items():
        print_table(title, rows)
    print()
    if findings:
        print(spelled(findings, min(shutil.get_terminal_size().columns, 100)), end="\n\n")
    if arguments.json:
        content = {**tables, "rates": own.rates, "findings": [asdict(finding) for finding in findings]}
        write_atomically(arguments.json, json.dumps(content, indent=2) + "\n")
    conclude(findings)


def conclude(findings: list[Finding]) -> None:
    """Say how many things are slow; RuntimeError that names what is broken."""
    slow = sum(finding.kind == "slow" for finding in findings)
    if broken := [finding.what for finding in findings if finding.kind == "broken"]:
        raise RuntimeError(f"broken: {'; '.join(broken)}; what mends each is printed above")
    count = {0: "nothing is", 1: "1 thing is"}.get(slow, f"{slow} things are")
    print(f"Nothing is broken, and {count} slower than need be.")
