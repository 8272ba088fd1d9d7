"""Shared code of client processes: repositories of their own, errors as values, answers as JSON.

The clients read HF_ENDPOINT and HF_HOME when they are imported, so each set of jobs is a process of its own.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

Jobs = dict[str, Callable[[], Any]]


def named(label: str) -> str:
    """The repository of that label in this run of the tests."""
    return f"{os.environ['QKV_TEST_NAMESPACE']}/qkv-test-{os.environ['QKV_TEST_RUN']}-{label}"


def refusal(call: Callable[..., Any], *arguments: Any, **options: Any) -> dict[str, Any]:
    """Return how a call failed: the exception, its HTTP status, its message; None, None and empty if it did not."""
    try:
        call(*arguments, **options)
    except Exception as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        return {"kind": type(error).__name__, "status": status, "message": str(error)}
    return {"kind": None, "status": None, "message": ""}


def main(jobs: Jobs) -> None:
    """Do the jobs named on the command line and print what each found; one that fails leaves its traceback."""
    answers: dict[str, Any] = {}
    for name in sys.argv[1:]:
        try:
            answers[name] = jobs[name]()
        except Exception:
            answers[name] = {"traceback": traceback.format_exc()[:3000]}
    print(json.dumps(answers))
