"""Several processes decide once, and a process that torchrun restarts finds the values of the first attempt."""

from types import SimpleNamespace

import pytest
from accelerate import Accelerator
from torch.distributed import TCPStore

from qkv.scripts.training import distributed as processes
from qkv.scripts.training.distributed import run_on_main, value_of_first_attempt


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
