"""Memory, whole and free, is that of the machine, or what the limits of control groups leave of it."""

import platform
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from qkv.scripts.common import memory
from qkv.scripts.common.memory import free_memory, limited_groups, total_memory


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder whose control groups, in the file `table` beside them, are those of this process."""
    monkeypatch.setattr(memory, "limited_groups", lambda: limited_groups(tmp_path, tmp_path / "table"))
    return tmp_path


def test_a_group_of_the_second_version_leaves_its_limit_but_for_what_is_used(groups: Path) -> None:
    write(groups / "job", memory__max=1000, memory__current=700, memory__stat="anon 5\ninactive_file 200")
    write(groups / "job" / "step", memory__max="max", memory__current=600)
    write(groups, table="0::/job/step")
    assert free_memory(torch.device("cpu")) == 500
    assert total_memory() == 1000


def test_groups_of_the_first_version_are_limited_each(groups: Path) -> None:
    write(groups / "memory" / "slurm", memory__limit_in_bytes=900, memory__usage_in_bytes=950)
    own = groups / "memory" / "slurm" / "job"
    write(own, memory__limit_in_bytes=800, memory__usage_in_bytes=300, memory__stat="total_inactive_file 10")
    write(groups, table="4:cpu,cpuacct:/other\n3:memory:/slurm/job")
    assert [most - used for _, most, used in limited_groups(groups, groups / "table")] == [500, -50]
    assert free_memory(torch.device("cpu")) == 0
    assert total_memory() == 800


def test_without_groups_it_is_the_machine_s(groups: Path) -> None:
    free = free_memory(torch.device("cpu"))
    assert free is not None and 0 < free <= total_memory() == psutil.virtual_memory().total


def test_a_large_limit_is_none(groups: Path) -> None:
    write(groups / "job", memory__max=10**18, memory__current=700)
    write(groups, table="0::/job")
    assert total_memory() == psutil.virtual_memory().total


def test_meta_tells_nothing() -> None:
    assert free_memory(torch.device("meta")) is None


FAULTS = """
import resource, sys
import torch
from qkv.scripts.common.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

given_back = faults()
keep_freed_memory(torch.device("cpu"))
print(given_back, [faults() for _ in range(8)][-1])  # the first ones make the heap grow
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to keep memory")
def test_memory_that_is_kept_is_not_cleared_by_the_kernel_again() -> None:
    output = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True).stdout
    given_back, kept = map(int, output.split())
    assert given_back > 4 * 2**26 // 2**21  # at least one fault for every huge page of four tensors
    assert kept < 16
