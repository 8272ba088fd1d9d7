"""Several processes decide once, and what torchrun starts again finds the value of the first time."""

from types import SimpleNamespace

import pytest
from accelerate import Accelerator
from torch.distributed import TCPStore

from qkv.scripts.training import distributed as processes
from qkv.scripts.training.distributed import (
    agent_store,
    init_elastic_process_group,
    local_main_first,
    run_on_main,
    value_of_first_attempt,
)


def test_one_process_agrees_with_itself() -> None:
    assert run_on_main(Accelerator(cpu=True), lambda: 3) == 3
    with pytest.raises(ValueError, match="no"):
        run_on_main(Accelerator(cpu=True), lambda: int("no"))


def test_other_processes_take_or_raise_what_the_main_one_found(monkeypatch: pytest.MonkeyPatch) -> None:
    other = SimpleNamespace(is_main_process=False)
    for sent in ([7, None], [None, OSError("disk full")]):
        monkeypatch.setattr(processes, "broadcast_object_list", lambda mine, sent=sent: sent)
        if sent[1] is None:
            assert run_on_main(other, lambda: 1 / 0) == 7
        else:
            with pytest.raises(OSError, match="disk full"):
                run_on_main(other, lambda: 1 / 0)


@pytest.mark.parametrize(("rank", "order"), [("0", ["made", "met"]), ("1", ["met", "made"])])
def test_the_first_process_of_a_machine_makes_before_the_others(
    rank: str, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    monkeypatch.setenv("LOCAL_RANK", rank)
    assert local_main_first(lambda: 3) == 3
    monkeypatch.setattr(processes.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(processes.distributed, "barrier", lambda: found.append("met"))
    local_main_first(lambda: found.append("made"))
    assert found == order
    # The others must not wait for one that failed: they meet the same error.
    with pytest.raises(ZeroDivisionError):
        local_main_first(lambda: 1 / 0)
    assert found == [*order, "met"]


def test_without_torchrun_nothing_is_joined_and_a_value_is_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    init_elastic_process_group()
    assert agent_store() is None and value_of_first_attempt("out", "runs/a") == "runs/a"


def test_a_value_lasts_as_long_as_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for name, value in {"USE_AGENT_STORE": "True", "RESTART_COUNT": "0"}.items():
        monkeypatch.setenv(f"TORCHELASTIC_{name}", value)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(agent.port))
    assert value_of_first_attempt("out", "runs/first") == "runs/first" == value_of_first_attempt("out", "runs/second")
    assert value_of_first_attempt("other", "x") == "x"
