"""The machine's limits are of the work that was done."""

import pytest
import torch

from qkv.scripts.lab.benchmarking import machine

CPU = torch.device("cpu")


def test_peaks_are_work_over_the_least_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PRODUCTS", ((8, 4, 2), (4, 4, 4)))
    monkeypatch.setattr(machine, "READ", 2**16)
    laps = iter([9.0, *[0.5] * machine.REPEATS, 9.0, *[0.25] * machine.REPEATS] * 2)
    monkeypatch.setattr(machine, "seconds", lambda step: (step(), next(laps))[1])
    assert machine.gemm_peak(CPU, torch.float32) == max(2 * 64 / 0.5, 2 * 64 / 0.25)
    assert machine.bandwidth(CPU, torch.float32) == 2**16 / 0.25
