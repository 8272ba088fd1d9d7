"""`qkv.conform` and `qkv.parametrize_with_checks`: run the table of checks over a model, and report."""

import json
import os
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from qkv.scripts.common.words import did_you_mean
from qkv.scripts.conformance.outcomes import ConformanceError, Limit, NotApplicable
from qkv.scripts.conformance.subject import Options, Subject
from qkv.scripts.conformance.table import CHECKS, Check

STATUS: dict[type[BaseException], str] = {ConformanceError: "FAILED", Limit: "limit", NotApplicable: "–"}
WRONG = ("FAILED", "error")
CHILD = (
    "import sys, qkv; qkv.import_models(); from qkv.scripts.conformance import report; report.answer(sys.stdin.read())"
)
ANSWER = "\n#conformance "


@dataclass(frozen=True)
class Row:
    """A status: passed, FAILED (silently wrong), error (refuses), limit (nowhere promised) or – (does not apply)."""

    check: str
    status: str
    reason: str
    seconds: float
    reproduction: str = ""


@dataclass(frozen=True)
class Report:
    """Outcomes of all checks of a model; `failures` are silently wrong."""

    model: str
    kind: str
    seed: int
    rows: list[Row] = field(default_factory=list)

    @property
    def failures(self) -> list[Row]:
        """Return the rows of checks that failed."""
        return [row for row in self.rows if row.status == "FAILED"]

    def __str__(self) -> str:
        """Return a line for each check, and a program for each failure."""
        lines = [f"{row.check:18} {row.status:7} {row.reason}".rstrip() for row in self.rows]
        return "\n".join([*lines, *(f"\n# {row.check}\n{row.reproduction}" for row in self.failures)])


def conform(
    source: Any,
    config: Any = None,
    *,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    expected: Mapping[str, str] | None = None,
    **options: Any,
) -> Report:
    """Check a class, a model, `module:Class`, a folder or a Hub id, and return the report.

    A class without `config` is shrunk; a model keeps its weights. `options` are `inputs` (a function of rows, length
    and seed that returns the inputs), `seed`, `weights` (the stored ones), `trust_remote_code` and `revision`;
    `expected` has reasons by check: those are limits if they fail, and failures if they pass.
    """
    names, known = chosen(list(only), list(skip)), dict(expected or {})
    chosen(list(known), [])
    if options.get("trust_remote_code") and isinstance(source, str | Path) and not os.environ.get("QKV_CONFORM_CHILD"):
        return in_a_process(str(source), names, options)
    subject = Subject(source, Options(config, **options))
    rows = [examined(subject, CHECKS[name], known.get(name)) for name in names]
    return Report(subject.cls.__name__, subject.kind, subject.seed, rows)


def chosen(only: list[str], skip: list[str]) -> list[str]:
    """Return the checks to run; ValueError for one that does not exist."""
    for name in (*only, *skip):
        if name not in CHECKS:
            raise ValueError(f"there is no check {name!r}; {did_you_mean(name, [*CHECKS], 'checks')}")
    return [name for name in CHECKS if name in (only or CHECKS) and name not in skip]


def examined(subject: Subject, check: Check, known: str | None) -> Row:
    """Run a check, again with other weights and inputs where it failed, and return its row."""
    start = time.perf_counter()
    status, reason = outcome(subject, check)
    if status in WRONG and outcome(subject.again, check)[0] not in WRONG:
        status, reason = "passed", f"not with other weights and inputs: {reason}"
    if known is not None:
        status, reason = (
            ("limit", known) if status in WRONG else ("FAILED", f"passes, and is expected to fail: {known}")
        )
    shown = check.program_for(subject) if status == "FAILED" and known is None else ""
    return Row(check.name, status, reason, round(time.perf_counter() - start, 2), shown)


def outcome(subject: Subject, check: Check) -> tuple[str, str]:
    """Run a check once, and return its status and reason."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check.run(subject)
    except Exception as error:  # a model that refuses, by whatever error, is not silently wrong
        status, text = STATUS.get(type(error), "error"), " ".join(str(error).split())
        if status != "error":
            return status, text
        place = traceback.extract_tb(error.__traceback__)[-1]
        return status, f"{type(error).__name__}: {text[:150]} ({Path(place.filename).name}:{place.lineno})"
    return "passed", ""


def in_a_process(source: str, names: list[str], options: dict[str, Any]) -> Report:
    """Run the code of a repository in a process of its own, without tokens, and return its report."""
    if options.get("inputs"):
        raise ValueError("inputs= cannot be sent to the process of remote code; load the model, and give it instead")
    secret = ("TOKEN", "SECRET", "PASSWORD", "KEY")
    environment = {key: value for key, value in os.environ.items() if not any(word in key.upper() for word in secret)}
    job = json.dumps({"source": source, "only": names, **options})
    words, environment["QKV_CONFORM_CHILD"] = [sys.executable, "-P", "-c", CHILD], "1"
    done = subprocess.run(words, input=job, capture_output=True, text=True, env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["the process ended without a message"])[-1]
        raise RuntimeError(f"the code of {source} cannot be checked: {last}")
    report = json.loads(done.stdout.rpartition(ANSWER)[2])
    return Report(**{**report, "rows": [Row(**row) for row in report["rows"]]})


def answer(job: str) -> None:
    """Check the source of a job, and print the report."""
    print(ANSWER + json.dumps(asdict(conform(**json.loads(job)))))


@dataclass(frozen=True)
class BoundCheck:
    """A check for pytest: called with its subject it raises what `qkv conform` reports."""

    check: Check

    def __call__(self, subject: Subject) -> None:
        """Check a subject; a failure counts if other weights and inputs show it again."""
        try:
            self.check.run(subject)
        except (Limit, NotApplicable):
            raise
        except Exception as error:
            if outcome(subject.again, self.check)[0] in WRONG:
                shown = self.check.program_for(subject) if isinstance(error, ConformanceError) else ""
                raise ConformanceError(f"{self.check.name}: {error}\n{shown}") from error


def parametrize_with_checks(
    sources: Iterable[Any],
    *,
    expected: Mapping[str, str] | Callable[[Any], Mapping[str, str]] | None = None,
    **options: Any,
) -> Any:
    """Parametrize a test `def test_model(subject, check): check(subject)` over models and checks.

    A source is that of `qkv.conform`, or a pair of a class and its configuration. `expected` has reasons by check, or
    is a function of a source that returns them: these checks have to fail.
    """
    import pytest

    cases = []
    for source in sources:
        model, config = source if isinstance(source, tuple) else (source, None)
        subject = Subject(model, Options(config, **options))
        known = expected(source) if callable(expected) else dict(expected or {})
        chosen(list(known), [])
        for name, check in CHECKS.items():
            marks = [pytest.mark.xfail(reason=known[name], strict=True)] if name in known else []
            cases.append(pytest.param(subject, BoundCheck(check), id=f"{subject.cls.__name__}-{name}", marks=marks))
    return pytest.mark.parametrize(("subject", "check"), cases)
