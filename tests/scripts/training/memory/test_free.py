"""Free memory is that of the machine, or what the limits of control groups leave of it."""

from pathlib import Path

import psutil
import pytest
import torch

from qkv.scripts.training.memory import free
from qkv.scripts.training.memory.free import cgroup_memory, free_memory


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def test_a_group_of_the_second_version_leaves_its_limit_but_for_what_is_used(tmp_path: Path) -> None:
    write(tmp_path / "job", memory__max=1000, memory__current=700, memory__stat="anon 5\ninactive_file 200")
    write(tmp_path / "job" / "step", memory__max="max", memory__current=600)
    write(tmp_path, table="0::/job/step")
    assert list(cgroup_memory(tmp_path, tmp_path / "table")) == [500]


def test_groups_of_the_first_version_are_limited_each(tmp_path: Path) -> None:
    write(tmp_path / "memory" / "slurm", memory__limit_in_bytes=900, memory__usage_in_bytes=950)
    own = tmp_path / "memory" / "slurm" / "job"
    write(own, memory__limit_in_bytes=800, memory__usage_in_bytes=300, memory__stat="total_inactive_file 10")
    write(tmp_path, table="4:cpu,cpuacct:/other\n3:memory:/slurm/job")
    assert list(cgroup_memory(tmp_path, tmp_path / "table")) == [510, 0]


def test_no_groups_are_no_limit(tmp_path: Path) -> None:
    assert list(cgroup_memory(tmp_path, tmp_path / "none")) == []


def test_the_least_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free, "cgroup_memory", lambda: iter(()))
    machine = free_memory(torch.device("cpu"))
    assert machine is not None and 0 < machine <= psutil.virtual_memory().total
    monkeypatch.setattr(free, "cgroup_memory", lambda: iter((10**18, 12)))
    assert free_memory(torch.device("cpu")) == 12
    assert free_memory(torch.device("meta")) is None
