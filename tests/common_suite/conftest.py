"""Markers of transformers' tests, and the page of what they said: `pytest tests/common_suite --page FILE`."""

import platform
import re
from collections import Counter, defaultdict

import pytest
import torch
import transformers

import tables

MARKERS = (
    "is_training_test",
    "is_tensor_parallel_test",
    "torch_compile_test",
    "flash_attn_4_test",
    "flash_attn_3_test",
    "flash_attn_test",
    "accelerate_tests",
    "is_fsdp_test",
    "generate",
    "torch_export_test",
    "is_pipeline_test",
)
HEAD = """# transformers' common tests

<!-- Written by `make common-suite`. Change tests/common_suite, never this file. -->

The tests that transformers runs on each of its own models (modeling, training and tensor parallelism; of its source
distribution, which has no others that need no files of the Hub), over every family at a tiny size, and over three models
of transformers in the same way. What a model does not take part in is left out by their own conditions, which are
counted below; what does not apply to one of ours is named with its reason.

transformers {transformers}, torch {torch}, {machine}.

| family | passed | failed | do not apply | left out by their own conditions |
| --- | --- | --- | --- | --- |
"""
RULES = """
## What does not apply

| test | family | why |
| --- | --- | --- |
"""
CONDITIONS = """
## What their own conditions leave out

| why | tests |
| --- | --- |
"""

outcomes: dict[str, Counter[str]] = defaultdict(Counter)
conditions: Counter[str] = Counter()
TABLE = tables.beside(__file__, "test_models.yaml")
REASONS = {reason for reasons in TABLE.values() for reason in reasons.values()}


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count a test by its family; a part of one that failed counts as the test."""
    if "test_models.py::Test" not in report.nodeid or report.when == "teardown" or hasattr(report, "context"):
        return
    outcome = report.outcome
    if outcome == "passed" and report.when == "setup":
        return
    if outcome == "skipped":
        assert isinstance(report.longrepr, tuple)
        reason = report.longrepr[2].removeprefix("Skipped: ")
        outcome = "does not apply" if reason in REASONS else "left out"
        if outcome == "left out":
            conditions[re.sub(r"<class '[^']*'>|\b(Qkv|Bert|GPT2|T5)\w+", "the model", reason)] += 1
    outcomes[report.nodeid.split("::Test")[1].split("::")[0]][outcome] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the page."""
    path = session.config.getoption("--page")
    if path is None or hasattr(session.config, "workerinput"):
        return
    versions = {"transformers": transformers.__version__, "torch": torch.__version__, "machine": platform.machine()}
    kinds = ("passed", "failed", "does not apply", "left out")
    rows = [f"| {family} | {' | '.join(str(counts[kind]) for kind in kinds)} |" for family, counts in outcomes.items()]
    families: dict[tuple[str, str], list[str]] = defaultdict(list)
    for test, reasons in TABLE.items():
        for family, reason in reasons.items():
            families[test, reason].append(family)
    rules = [f"| `{test}` | {', '.join(names)} | {reason} |" for (test, reason), names in families.items()]
    skipped = [f"| {reason} | {count} |" for reason, count in conditions.most_common()]
    parts = (HEAD.format(**versions), *sorted(rows), RULES, *rules, CONDITIONS, *skipped)
    path.write_text("\n".join(part.rstrip("\n") for part in parts) + "\n", encoding="utf-8")
