"""Read how much memory is free, within the limits that a container or a batch system sets."""

import ctypes
import platform
from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

CGROUPS, OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
# Parameters of mallopt, from glibc's malloc.h.
TRIM_THRESHOLD, MMAP_MAX = -1, -4


def free_memory(device: torch.device) -> int | None:
    """Return the bytes that this process may still take on a device, None where the device does not tell."""
    if device.type == "cpu":
        return min([psutil.virtual_memory().available, *room_in_groups()])
    if device.type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def room_in_groups(root: Path = CGROUPS, table: Path = OWN_CGROUP) -> Iterator[int]:
    """Yield the bytes that each control group of this process leaves of its limit.

    Source: Linux' control groups, version 2, https://docs.kernel.org/admin-guide/cgroup-v2.html
    """
    try:
        own = root / table.read_text().strip().rpartition("::")[2].lstrip("/")
    except OSError:
        return
    for folder in (own, *own.parents):
        try:
            limit, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
            entries = dict(line.split(" ", 1) for line in (folder / "memory.stat").read_text().splitlines())
        except OSError:
            continue
        if limit.isdecimal():  # or max
            # Files at hand are given back when memory is short.
            yield max(int(limit) - int(used) + int(entries.get("inactive_file", 0)), 0)


def keep_freed_memory(device: torch.device) -> None:
    """Let a process that computes on a CPU keep the memory that it frees, for its next tensors.

    Otherwise glibc returns large blocks to the kernel, which clears each page of them again when it is next touched, at
    every step of a training. The process holds somewhat more memory. Other C libraries stay as they are.

    Source: mallopt(3), M_MMAP_MAX and M_TRIM_THRESHOLD, https://man7.org/linux/man-pages/man3/mallopt.3.html
    """
    if device.type == "cpu" and platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(MMAP_MAX, 0)
        libc.mallopt(TRIM_THRESHOLD, -1)
