"""`qkv.conform` and `qkv.parametrize_with_checks`: run the table of checks over a model, and report."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qkv.scripts.common.words import did_you_mean
from qkv.scripts.conformance.subject import Options, Subject
from qkv.scripts.conformance.table import CHECKS, WRONG, Check

CHILD = (
    "import sys, qkv; qkv.import_models(); from qkv.scripts.conformance import report; report.answer(sys.stdin.read())"
)
ANSWER = "\n#conformance "
SECRET = ("TOKEN", "SECRET", "PASSWORD", "KEY")


@dataclass(frozen=True)
class Row:
    """A status: passed, FAILED (silently wrong), error (refuses), limit (nowhere promised) or – (does not apply)."""

    check: str
    status: str
    reason: str
    seconds: float
    program: str = ""


@dataclass(frozen=True)
class Report:
    """Outcomes of all checks of a model; `failures` are silently wrong."""

    model: str
    kind: str
    seed: int
    rows: list[Row]

    @property
    def failures(self) -> list[Row]:
        """Return the rows of checks that failed."""
        return [row for row in self.rows if row.status == "FAILED"]

    def __str__(self) -> str:
        """Return a line for each check, and a program for each failure."""
        lines = [f"{row.check:18} {row.status:7} {row.reason}".rstrip() for row in self.rows]
        return "\n".join([*lines, *(f"\n# {row.check}\n{row.program}" for row in self.failures)])


def conform(source: Any, config: Any = None, *, only: Iterable[str] = (), skip: Iterable[str] = (),
            expected: Mapping[str, str] | None = None, **options: Any) -> Report:  # fmt: skip
    """Check a class, a model, `module:Class`, a folder or a Hub id, and return the report.

    A class without `config` is shrunk; a model keeps its weights. `options` are `inputs` (a function of rows, length
    and seed that returns the inputs), `seed`, `weights` (the stored ones), `trust_remote_code` and `revision`;
    `expected` has reasons by check: those are limits if they fail, and failures if they pass.
    """
    known = dict(expected or {})
    names = chosen(list(only), [*skip], known)
    if options.get("trust_remote_code") and isinstance(source, str | Path) and not os.environ.get("QKV_CONFORM_CHILD"):
        return in_a_process({"source": str(source), "only": names, "expected": known, **options})
    subject = Subject(source, Options(config, **options))
    rows = [examined(subject, CHECKS[name], known.get(name)) for name in names]
    return Report(subject.cls.__name__, subject.kind, subject.seed, rows)


def chosen(only: list[str], skip: list[str], known: Iterable[str]) -> list[str]:
    """Return the checks to run; ValueError for one that does not exist."""
    for name in (*only, *skip, *known):
        if name not in CHECKS:
            raise ValueError(f"there is no check {name!r}; {did_you_mean(name, [*CHECKS], 'checks')}")
    return [name for name in CHECKS if name in (only or CHECKS) and name not in skip]


def examined(subject: Subject, check: Check, known: str | None) -> Row:
    """Run a check, again with other weights and inputs where it failed, and return its row."""
    start = time.perf_counter()
    status, reason = check.outcome(subject)
    program = check.program_for(subject) if status == "FAILED" else ""
    if known is not None:
        passes = ("FAILED", f"passes, and is expected to fail: {known}")
        status, reason = ("limit", known) if status in WRONG else passes
    return Row(check.name, status, reason, round(time.perf_counter() - start, 2), program)


def in_a_process(job: dict[str, Any]) -> Report:
    """Run the code of a repository in a process of its own, without tokens, and return its report."""
    if job.get("inputs"):
        raise ValueError("inputs= cannot be sent to the process of remote code; load the model, and give it instead")
    environment = {key: value for key, value in os.environ.items() if not any(word in key.upper() for word in SECRET)}
    words, environment["QKV_CONFORM_CHILD"] = [sys.executable, "-P", "-c", CHILD], "1"
    done = subprocess.run(words, input=json.dumps(job), capture_output=True, text=True, env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["the process ended without a message"])[-1]
        raise RuntimeError(f"the code of {job['source']} cannot be checked: {last}")
    report = json.loads(done.stdout.rpartition(ANSWER)[2])
    return Report(**{**report, "rows": [Row(**row) for row in report["rows"]]})


def answer(job: str) -> None:
    """Check the source of a job, and print the report."""
    print(ANSWER + json.dumps(asdict(conform(**json.loads(job)))))


def parametrize_with_checks(
    sources: Iterable[Any], *, expected: Callable[[Any], Mapping[str, str]] = lambda _: {}, **options: Any
) -> Any:
    """Parametrize a test `def test_model(subject, check): check(subject)` over models and checks.

    A source is that of `qkv.conform`, or a pair of a class and its configuration. `expected` takes a source and returns
    reasons by check: these checks have to fail. `options` are those of `qkv.conform`.
    """
    import pytest

    cases = []
    for source in sources:
        model, config = source if isinstance(source, tuple) else (source, None)
        subject, known = (
            Subject(model, Options(config, **options)),
            expected(source) if callable(expected) else expected,
        )
        for name in chosen([], [], known):
            xfail = [pytest.mark.xfail(reason=known[name], strict=True)] if name in known else []
            cases.append(pytest.param(subject, CHECKS[name], id=f"{subject.cls.__name__}-{name}", marks=xfail))
    return pytest.mark.parametrize(("subject", "check"), cases)
