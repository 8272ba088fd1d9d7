"""Every check finds a fault that is planted for it, and as far as possible no other check does.

`python tests/scripts/conformance/test_planted.py` prints the table of faults and checks.
"""

import time

import pytest
from transformers import LlamaForCausalLM

from planted import FAULTS, Planted
from qkv.scripts.conformance.report import CHECKS, WRONG, examined
from qkv.scripts.conformance.subject import Options, Subject

# `unknown_keyword` knows no failure, for all of transformers swallows keywords: test_report.py.
PLANTED = {fault.check for fault in FAULTS}


def found_by(fault: Planted, *checks: str) -> dict[str, str]:
    """The reasons of checks that find a fault."""
    subject = Subject(fault.model_class, Options(fault.config()))
    rows = [examined(subject, CHECKS[name], None) for name in checks or CHECKS]
    return {row.check: f"{row.status} {row.reason}" for row in rows if row.status in WRONG}


def test_every_check_has_a_fault() -> None:
    assert PLANTED == CHECKS.keys() - {"unknown_keyword"}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: Planted) -> None:
    found = found_by(fault, fault.check)
    assert found[fault.check].startswith("FAILED")


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_no_other_check_finds_it(fault: Planted) -> None:
    assert found_by(fault).keys() - set(fault.also) == {fault.check}


@pytest.mark.slow
def test_the_model_without_a_fault_passes() -> None:
    whole = Planted("none", "", LlamaForCausalLM)
    assert found_by(whole) == {}


if __name__ == "__main__":
    for each in [Planted("none", "", LlamaForCausalLM), *FAULTS]:
        start = time.process_time()
        reasons = found_by(each)
        others = ", ".join(sorted(reasons.keys() - {each.check})) or "–"
        found = reasons.get(each.check, "NOT FOUND")
        print(
            f"{each.check:18} {each.name:34} {found[:60]:62} also {others} ({time.process_time() - start:.1f} s)",
            flush=True,
        )
