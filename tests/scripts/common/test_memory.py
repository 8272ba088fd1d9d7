"""Free memory is that of the machine, or what the limits of control groups leave of it."""

import platform
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from qkv.scripts.common import memory
from qkv.scripts.common.memory import free_memory, room_in_groups


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def test_a_control_group_leaves_its_limit_but_for_used_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "room_in_groups", lambda: room_in_groups(tmp_path, tmp_path / "table"))
    assert free_memory(torch.device("cpu")) == pytest.approx(psutil.virtual_memory().available, rel=0.2)
    write(tmp_path / "job", memory__max=1000, memory__current=700, memory__stat="anon 5\ninactive_file 200")
    write(tmp_path / "job" / "step", memory__max="max", memory__current=600, memory__stat="anon 1")
    write(tmp_path / "job" / "step" / "own", memory__max=10**18, memory__current=600, memory__stat="anon 1")
    write(tmp_path, table="0::/job/step/own")
    assert list(room_in_groups(tmp_path, tmp_path / "table")) == [10**18 - 600, 500]
    assert free_memory(torch.device("cpu")) == 500 and free_memory(torch.device("meta")) is None


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
