"""`qkv conform`, `qkv.conform` and `qkv.parametrize_with_checks`: run the table of checks over a model, and report."""

import json
import os
import subprocess
import sys
import time
import traceback
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field, replace
from io import StringIO
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from transformers.utils import logging

from qkv.scripts.common.files import table, write_json
from qkv.scripts.common.words import did_you_mean
from qkv.scripts.conformance import forward_checks, use_checks
from qkv.scripts.conformance.compare import ConformanceError, StepAside, skip_if
from qkv.scripts.conformance.subject import Subject

TABLE = table(__file__)
COMPILED = ("compiled", "exported")
WITHOUT_COMPILER = "force_eager"  # flex attention without code generation, which takes minutes
NOT_OF_A_MODEL = {"transformers_version", "dtype", "architectures", "id2label", "label2id", "_name_or_path", "auto_map"}
WRONG = ("FAILED", "error")
PUBLIC = ("transformers.", "qkv.")  # packages that people import classes from
Names = Iterable[str]
Reasons = Mapping[str, str]  # of checks that fail, by their names
NONE: Reasons = MappingProxyType({})
SECRET = ("TOKEN", "SECRET", "PASSWORD", "KEY")


@dataclass(frozen=True)
class Check:
    """A check: kinds of models, a program that shows a failure, issues that it would have caught."""

    name: str
    function: str
    kinds: tuple[str, ...]
    program: str
    reports: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    def once(self, subject: Subject) -> tuple[str, str]:
        """Check a model once, and return status and reason."""
        stance = "default" if self.name in COMPILED else WITHOUT_COMPILER
        try:
            skip_if(subject.kind not in self.kinds, f"not for {subject.kind}")
            with warnings.catch_warnings(action="ignore"), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                with torch.compiler.set_stance(stance):
                    FUNCTIONS[self.function](subject, **self.options)
        except StepAside as reason:
            return reason.status, str(reason)
        except ConformanceError as error:
            return "FAILED", str(error)
        except Exception as error:  # a model that refuses, by whatever error, is not silently wrong
            place = traceback.extract_tb(error.__traceback__)[-1]
            said = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
            return "error", f"{said} ({Path(place.filename).name}:{place.lineno})"
        return "passed", ""

    def outcome(self, subject: Subject) -> tuple[str, str]:
        """Return status and reason; a failure counts if other weights and inputs show it again."""
        status, reason = self.once(subject)
        if status in WRONG and self.once(replace(subject, seed=subject.seed + 100))[0] not in WRONG:
            return "passed", f"not with other weights and inputs: {reason}"
        return status, reason

    def __call__(self, subject: Subject) -> None:
        """Check a model for pytest: raise the failure that `qkv conform` reports."""
        status, reason = self.outcome(subject)
        if status in WRONG:
            raise ConformanceError(f"{self.name}: {reason}\n{self.program_for(subject)}")
        skip_if(status != "passed", reason)

    def program_for(self, subject: Subject) -> str:
        """Return a program to be pasted that makes the model and shows the failure."""
        config, default = subject.config, type(subject.config)().to_dict()
        fields = {key: value for key, value in config.to_dict().items() if key not in NOT_OF_A_MODEL}
        changed = ", ".join(f"{key}={value!r}" for key, value in fields.items() if default.get(key) != value)
        length, most = subject.image_length, getattr(subject.text, "vocab_size", 9) - 3  # image tokens are beyond
        inputs = ", ".join(f'"{key}": {random_tensor(value, most)}' for key, value in subject.batch().items())
        classes = (type(config), subject.cls)
        modules = (each.__module__ for each in classes)
        homes = [name.split(".")[0] if name.startswith(PUBLIC) else name for name in modules]
        facts = {"stream": subject.stream, "fields": changed, "inputs": f"{{{inputs}}}"}
        facts["image"] = f'inputs["input_ids"][:, :{length}] = config.image_token_id\n' if length else ""
        start: str = TABLE["start"].format(classes=classes, homes=homes, **facts)
        return f"{start}{self.program}"


def random_tensor(value: torch.Tensor, most: int) -> str:
    """Return the words that make a random input of the same shape, of tokens below a number."""
    if value.is_floating_point():
        return f"torch.randn{tuple(value.shape)}"
    return f"torch.randint(5, {max(min(int(value.max()) + 1, most), 6)}, {tuple(value.shape)})"


FUNCTIONS: dict[str, Any] = {**vars(forward_checks), **vars(use_checks)}
CHECKS = {name: Check(name, **{"function": name, **row}) for name, row in TABLE["checks"].items()}


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


def conform(
    source: Any, config: Any = None, *, only: Names = (), skip: Names = (), expected: Reasons = NONE, **options: Any
) -> Report:
    """Check a class, a model, `module:Class`, a folder or a Hub id, and return the report.

    A class without `config` is shrunk; a model keeps its weights. `options` are `inputs` (a function of rows, length
    and seed that returns the inputs), `seed`, `weights` (the stored ones), `trust_remote_code` and `revision`;
    `expected` has reasons by check: those are limits if they fail, and failures if they pass.
    """
    known, names = dict(expected), chosen([*only], [*skip], expected)
    if options.get("trust_remote_code") and isinstance(source, str | Path):
        return in_a_process({"source": str(source), "names": names, "known": known, **options})
    return checked(source, names, known, config=config, **options)


def checked(source: Any, names: list[str], known: Reasons, **options: Any) -> Report:
    """Check a source in this process."""
    subject = Subject(source, **options)
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
        status, reason = ("limit", known) if status in WRONG else ("FAILED", f"passes, expected to fail: {known}")
    return Row(check.name, status, reason, round(time.perf_counter() - start, 2), program)


def in_a_process(job: dict[str, Any]) -> Report:
    """Run the code of a repository in a process of its own, without tokens, and return its report."""
    if job.get("inputs"):
        raise ValueError("inputs= cannot be sent to the process of remote code; load the model, and give it instead")
    environment = {key: value for key, value in os.environ.items() if not any(word in key.upper() for word in SECRET)}
    words = [sys.executable, "-P", "-c", TABLE["child"], json.dumps(job)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["the process ended without a message"])[-1]
        raise RuntimeError(f"the code of {job['source']} cannot be checked: {last}")
    report = json.loads(done.stdout.splitlines()[-1])
    return Report(**{**report, "rows": [Row(**row) for row in report["rows"]]})


def parametrize_with_checks(
    sources: Iterable[Any], *, expected: Callable[[Any], Reasons] = lambda _: NONE, **options: Any
) -> Any:
    """Parametrize a test `def test_model(subject, check): check(subject)` over models and checks.

    A source is that of `qkv.conform`, or a pair of a class and its configuration. `expected` takes a source and returns
    reasons by check: these checks have to fail. `options` are those of `qkv.conform`.
    """
    import pytest

    cases = []
    for source in sources:
        subject = Subject(*(source if isinstance(source, tuple) else (source,)), **options)
        known = expected(source)
        for name in chosen([], [], known):
            xfail = [pytest.mark.xfail(reason=known[name], strict=True)] if name in known else []
            cases.append(pytest.param(subject, CHECKS[name], id=f"{subject.cls.__name__}-{name}", marks=xfail))
    return pytest.mark.parametrize(("subject", "check"), cases)


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
