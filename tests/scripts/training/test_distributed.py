"""Several processes decide once, and a process that torchrun restarts finds the values of the first attempt."""

from types import SimpleNamespace

import pytest
from accelerate import Accelerator
from torch.distributed import TCPStore

from qkv.scripts.training import distributed as processes
from qkv.scripts.training.distributed import local_main_first, run_on_main, value_of_first_attempt


def test_result_of_the_main_process_is_returned_or_raised_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_on_main(Accelerator(cpu=True), lambda: 3) == 3
    with pytest.raises(ValueError, match="no"):
        run_on_main(Accelerator(cpu=True), lambda: int("no"))
    other = SimpleNamespace(is_main_process=False)
    monkeypatch.setattr(processes, "broadcast_object_list", lambda mine: [7, None])
    assert run_on_main(other, lambda: 1 / 0) == 7
    monkeypatch.setattr(processes, "broadcast_object_list", lambda mine: [None, OSError("disk full")])
    with pytest.raises(OSError, match="disk full"):
        run_on_main(other, lambda: 1 / 0)


@pytest.mark.parametrize(("rank", "order"), [("0", ["made", "met"]), ("1", ["met", "made"])])
def test_first_process_of_a_machine_runs_before_the_others(
    rank: str, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    monkeypatch.setenv("LOCAL_RANK", rank)
    assert local_main_first(lambda: 3) == 3
    monkeypatch.setattr(processes.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(processes.distributed, "barrier", lambda: found.append("met"))
    local_main_first(lambda: found.append("made"))
    assert found == order
    # The others do not wait for one that failed.
    with pytest.raises(ZeroDivisionError):
        local_main_first(lambda: 1 / 0)
    assert found == [*order, "met"]


def test_value_of_the_first_attempt_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    assert value_of_first_attempt("out", "runs/a") == "runs/a"
    agent = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for name, value in {"USE_AGENT_STORE": "True", "RESTART_COUNT": "0"}.items():
        monkeypatch.setenv(f"TORCHELASTIC_{name}", value)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(agent.port))
    assert value_of_first_attempt("out", "runs/first") == "runs/first" == value_of_first_attempt("out", "runs/second")
    assert value_of_first_attempt("other", "x") == "x"
