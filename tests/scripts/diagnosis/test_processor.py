"""Findings about the processor follow from its cores, threads, instructions and rates."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from qkv.scripts.diagnosis import processor
from qkv.scripts.diagnosis.processor import (
    LIMITS,
    Processor,
    check_processor,
    look_at_processor,
    measured_rates,
    usable_cores,
)

IDLE = Processor(cores=4, threads=4, load=0.1, capability="AVX2", machine="x86_64", free=10**11)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of this process say nothing."""
    for name in (*LIMITS, "ATEN_CPU_CAPABILITY"):
        monkeypatch.delenv(name, raising=False)


def told(own: Processor) -> list[str]:
    return [finding.what for finding in check_processor(own)]


def test_an_idle_processor_has_no_findings() -> None:
    assert told(IDLE) == [] and told(replace(IDLE, capability="DEFAULT", machine="arm64")) == []


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"threads": 8}, "torch has 8 threads for 4 cores"),
        ({"threads": 2}, "torch uses 2 of 4 cores"),
        ({"load": 3.0}, "programs keep 3.0 of 4 cores busy, by the average of the last minute"),
        ({"capability": "DEFAULT"}, "torch has no kernels for this processor's vector instructions (no AVX2)"),
        ({"free": 10**9}, "only 1 GB of memory are free"),
        (
            {"rates": {"matrix products, fp32": 8e10, "matrix products, bf16": 2e10}},
            "products in bf16 run at 20 GFLOP/s here, those in fp32 at 80 GFLOP/s",
        ),
        (
            {"rates": {"matrix products, fp32": 8e10, "matrix products, bf16": 2e11}},
            "products in bf16 are 2.5 times as fast as in fp32 here",
        ),
        (
            {"rates": {"matrix products, fp32": 8e10, "matrix products, fp32, one thread": 5e10}},
            "4 threads compute 1.6 times as fast as one",
        ),
    ],
)
def test_each_fact_is_a_finding_of_its_own(fields: dict, what: str) -> None:
    assert told(replace(IDLE, **fields)) == [what]


def test_variables_that_cause_it_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    (finding,) = check_processor(replace(IDLE, threads=2))
    assert finding.what.endswith("(OMP_NUM_THREADS=2)") and finding.mend.startswith("unset OMP_NUM_THREADS")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    assert "ATEN_CPU_CAPABILITY=default chooses torch's kernels" in told(replace(IDLE, threads=2))


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 4),
        ({"cpu.max": "max 100000"}, 4),
        ({"cpu.max": "200000 100000"}, 2),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 4),
    ],
)
def test_cores_are_those_of_the_container(
    files: dict, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor.os, "sched_getaffinity", lambda process: set(range(4)), raising=False)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert usable_cores(tmp_path) == cores


def test_rates_are_measured_and_threads_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "PRODUCTS", ((8, 8, 8),))
    monkeypatch.setattr(processor, "bandwidth", lambda *given: 1e9)
    before = torch.get_num_threads()
    rates = measured_rates(before)
    assert torch.get_num_threads() == before and min(rates.values()) > 0
    assert ("matrix products, fp32, one thread" in rates) == (before > 1)


def test_a_look_measures_only_where_it_shall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "measured_rates", lambda threads: {"reading memory": 2e9})
    assert look_at_processor(measure=False).rates == {}
    assert look_at_processor(measure=True).rows()["reading memory"] == "2 GB/s"
