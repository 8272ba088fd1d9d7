"""Check the processor: cores, threads, vector instructions, and the rates that it reaches."""

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from qkv.scripts.benchmarking.machine import PRODUCTS, bandwidth, gemm_peak
from qkv.scripts.common.environment import processor
from qkv.scripts.common.memory import free_memory, total_memory
from qkv.scripts.common.tables import scaled
from qkv.scripts.diagnosis.findings import Finding

CPU = torch.device("cpu")
REPEATS = 5
# The quota of Linux' second and first version of control groups: microseconds of all cores in a period.
QUOTAS = ("cpu.max", "cpu/cpu.cfs_quota_us")
GROUPS = Path("/sys/fs/cgroup")
# Variables that limit threads, and the capability names of x86 from slow to fast.
LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
X86 = ("x86_64", "amd64")
# A share of the cores that others use, of the speed that one more thread should bring, and memory that is little.
BUSY, SCALING, LITTLE = 0.3, 0.6, 2e9


@dataclass
class Processor:
    """The cores that this process may use, what torch does with them, and what else runs on them."""

    cores: int
    threads: int
    load: float
    capability: str
    machine: str
    free: int
    # FLOP/s by precision, those of one thread, and bytes/s; nothing where nothing was measured.
    rates: dict[str, float] = field(default_factory=dict)

    def rows(self) -> dict[str, str]:
        """Return what is printed."""
        rows = {
            "processor": processor() or platform.processor() or self.machine,
            "cores for this process": f"{self.cores} of {os.cpu_count()}, load {self.load:.1f}",
            "threads of torch": str(self.threads),
            "vector instructions": f"{self.capability}, bfloat16 {'included' if has_bf16() else 'emulated'}",
            "memory": f"{scaled(self.free, 'B')} free of {scaled(total_memory(), 'B')}",
        }
        return rows | {name: scaled(rate, unit_of(name)) for name, rate in self.rates.items()}


def unit_of(name: str) -> str:
    """Return the unit of a rate."""
    return "B/s" if name == "reading memory" else "FLOP/s"


def look_at_processor(*, measure: bool) -> Processor:
    """Look at the processor, and measure its rates if that is wanted."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    free = free_memory(CPU) or 0
    capability = torch.backends.cpu.get_cpu_capability()
    own = Processor(usable_cores(), torch.get_num_threads(), load, capability, platform.machine().lower(), free)
    own.rates = measured_rates(own.threads) if measure else {}
    return own


def usable_cores(root: Path = GROUPS) -> int:
    """Return the cores that this process may use: those it is bound to, within the quota of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for name in QUOTAS:
        try:
            words = (root / name).read_text().split()
            period = words[1] if len(words) > 1 else (root / "cpu/cpu.cfs_period_us").read_text()
            quota = int(words[0]) / int(period)
        except (OSError, ValueError, IndexError):  # no such file, or no limit
            continue
        if quota > 0:
            cores = min(cores, max(1, round(quota)))
    return cores


def measured_rates(threads: int) -> dict[str, float]:
    """Measure products of matrices by all threads and by one, and reading."""
    rates = {
        f"matrix products, {name}": gemm_peak(CPU, dtype, PRODUCTS[:1], REPEATS)
        for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16))
    }
    if threads > 1:
        torch.set_num_threads(1)
        try:
            rates["matrix products, fp32, one thread"] = gemm_peak(CPU, torch.float32, PRODUCTS[:1], REPEATS)
        finally:
            torch.set_num_threads(threads)
    return rates | {"reading memory": bandwidth(CPU, torch.float32, REPEATS)}


def has_bf16() -> bool:
    """Return whether the processor has instructions for bfloat16."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()) if torch.backends.mkldnn.is_available() else False


def check_processor(own: Processor) -> Iterator[Finding]:
    """Check threads against cores, instructions, rates and memory."""
    yield from check_threads(own)
    yield from check_instructions(own)
    yield from check_rates(own)
    if own.free < LITTLE:
        yield Finding(
            "slow",
            f"only {scaled(own.free, 'B')} of memory are free",
            "what does not fit is swapped, or its process is killed",
            "end other programs, or take a smaller batch: qkv train says before its first step what it needs",
        )


def check_threads(own: Processor) -> Iterator[Finding]:
    """Compare threads with cores, and with what others use of them."""
    limits = [f"{name}={os.environ[name]}" for name in LIMITS if name in os.environ]
    cause = f" ({', '.join(limits)})" if limits else ""
    if own.threads > own.cores:
        yield Finding(
            "slow",
            f"torch has {own.threads} threads for {own.cores} cores{cause}",
            "threads that share a core wait for each other in every operation",
            f"export OMP_NUM_THREADS={own.cores}, or threads={own.cores} of qkv train",
        )
    if own.threads < own.cores:
        yield Finding(
            "slow",
            f"torch uses {own.threads} of {own.cores} cores{cause}",
            "large operations run on one core for each thread, and the other cores stay idle",
            f"{'unset ' + limits[0].partition('=')[0] if limits else f'export OMP_NUM_THREADS={own.cores}'}; one "
            "thread is right where several processes share the machine",
        )
    if own.load > BUSY * own.cores:
        yield Finding(
            "slow",
            f"programs keep {own.load:.1f} of {own.cores} cores busy, by the average of the last minute",
            "a training shares the cores with them, and what is timed meanwhile means little",
            "look at them with top, and wait for them or end them",
        )


def check_instructions(own: Processor) -> Iterator[Finding]:
    """Check that torch uses the vector instructions that there are."""
    if forced := os.environ.get("ATEN_CPU_CAPABILITY"):
        yield Finding(
            "slow",
            f"ATEN_CPU_CAPABILITY={forced} chooses torch's kernels",
            "those for newer instructions are faster where the processor has them",
            "unset ATEN_CPU_CAPABILITY",
        )
    elif own.capability in ("DEFAULT", "NO AVX") and own.machine in X86:
        yield Finding(
            "slow",
            "torch has no kernels for this processor's vector instructions (no AVX2)",
            "each instruction computes one number where AVX2 computes eight",
            "use a processor since 2015, or a virtual machine that passes AVX2 on",
        )


def check_rates(own: Processor) -> Iterator[Finding]:
    """Check that threads pay, and whether bfloat16 does."""
    full, half, single = (own.rates.get(f"matrix products, {name}") for name in ("fp32", "bf16", "fp32, one thread"))
    if full and half and half < full:
        yield Finding(
            "slow",
            f"products in bf16 run at {scaled(half, 'FLOP/s')} here, those in fp32 at {scaled(full, 'FLOP/s')}",
            "precision=bf16 makes a training on this processor slower, not faster",
            "leave precision=fp32, or use a processor with AVX512-BF16 or AMX, or a GPU",
        )
    if full and half and half > 1.3 * full:
        yield Finding(
            "note",
            f"products in bf16 are {half / full:.1f} times as fast as in fp32 here",
            "large models train faster in bf16 on this processor",
            "add precision=bf16 to qkv train",
        )
    if full and single and full < SCALING * single * own.threads:
        yield Finding(
            "slow",
            f"{own.threads} threads compute {full / single:.1f} times as fast as one",
            "the others wait: their cores are shared with other programs or virtual machines, or are half cores",
            "run this again when the machine is idle; where it stays so, export OMP_NUM_THREADS=1 costs little",
        )
