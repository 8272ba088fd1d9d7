"""Markers of transformers' tests, and the page of what they said: `pytest tests/common_suite --page FILE`."""

import platform
import re
from collections import Counter, defaultdict

import pytest
import torch
import transformers
import transformers_source

MARKERS = (
    "is_training_test is_tensor_parallel_test is_expert_parallel_test is_fsdp_test is_pipeline_test torch_compile_test "
    "torch_export_test flash_attn_4_test flash_attn_3_test flash_attn_test accelerate_tests generate"
).split()
HEAD = """# transformers' common tests

<!-- Written by `make common-suite`. Change tests/common_suite, never this file. -->

The tests that transformers runs on each of its own models, over every family at a tiny size, and over three models of
transformers in the same way. What a model does not take part in is left out by their own conditions, which are counted
below; what does not apply to one of ours is named with its reason.

Of the source distribution of transformers on PyPI: those of modeling over every family, those of training and of tensor
parallelism over decoders, those of expert parallelism over a mixture of experts, those of FSDP over decoders and
encoder-decoders (on CPU, over gloo). It has none of export. {generation}

Of the other tests there, those of image processors, feature extractors, processors and tokenizers are for classes that
qkv has none of: its models use transformers' own. Those of backbones and decision heads are for models of which qkv has
none. Those of pipelines and configs are not whole without a checkout: the first are a frame around files of one,
which load models, images and sounds of the Hub, the second import one. qkv tests both itself (tests/ecosystem,
tests/configuration). The mixin for memory frees it, and has no tests.

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

NO_GENERATION = "It has none of generation either."
GENERATION = "Those of generation, over all models that generate, are {of}."

outcomes: dict[str, Counter[str]] = defaultdict(Counter)
conditions: Counter[str] = Counter()
TABLE = transformers_source.inapplicable()
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


def generation() -> str:
    """Say which tests of generation there are."""
    if not transformers_source.GENERATION.is_dir():
        return NO_GENERATION
    named = transformers_source.GENERATION / "FROM"
    return GENERATION.format(of=named.read_text(encoding="utf-8").strip() if named.exists() else "of the same version")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the page."""
    path = session.config.getoption("--page")
    if path is None or hasattr(session.config, "workerinput"):
        return
    versions = {"transformers": transformers.__version__, "torch": torch.__version__, "machine": platform.machine()}
    versions["generation"] = generation()
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
