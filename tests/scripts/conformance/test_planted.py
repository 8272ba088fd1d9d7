"""Every check finds a fault that is planted for it, and as far as possible no other check does.

`python tests/scripts/conformance/test_planted.py` prints the table of faults and checks.
"""

import time
from typing import Any

import pytest
from planted import FAULTS, Planted
from transformers import LlamaForCausalLM

from qkv.scripts.conformance.report import CHECKS, WRONG
from qkv.scripts.conformance.subject import Subject

# `unknown_keyword` knows no failure, for all of transformers swallows keywords: test_report.py.
PLANTED = {fault.check for fault in FAULTS}


def found_by(fault: Planted, *checks: str) -> dict[str, str]:
    """The reasons of checks that find a fault."""
    subject = Subject(fault.model_class, fault.config())
    outcomes = {name: CHECKS[name].outcome(subject) for name in checks or CHECKS}
    return {name: " ".join(outcome) for name, outcome in outcomes.items() if outcome[0] in WRONG}


def test_every_check_has_a_fault() -> None:
    assert PLANTED == CHECKS.keys() - {"unknown_keyword"}


def faults(*slow: str) -> list[Any]:
    """The faults, those of some checks as slow cases."""
    marked = {check: [pytest.mark.slow] for check in slow}
    return [pytest.param(fault, id=fault.name, marks=marked.get(fault.check, ())) for fault in FAULTS]


@pytest.mark.parametrize("fault", faults("compiled", "exported"))
def test_a_planted_fault_is_found(fault: Planted) -> None:
    assert found_by(fault, fault.check)[fault.check].startswith("FAILED")


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_no_other_check_finds_it(fault: Planted) -> None:
    assert found_by(fault).keys() - set(fault.also) == {fault.check}


@pytest.mark.slow
def test_the_model_without_a_fault_passes() -> None:
    assert found_by(Planted("none", "", LlamaForCausalLM)) == {}


if __name__ == "__main__":
    for fault in [Planted("none", "", LlamaForCausalLM), *FAULTS]:
        start = time.process_time()
        reasons = found_by(fault)
        others = ", ".join(sorted(reasons.keys() - {fault.check})) or "–"
        found, seconds = reasons.get(fault.check, "NOT FOUND")[:60], time.process_time() - start
        print(f"{fault.check:18} {fault.name:34} {found:62} also {others} ({seconds:.1f} s)", flush=True)
