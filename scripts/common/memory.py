"""Read how much memory there is and how much is free, within the limits that a container or a batch system sets."""

import ctypes
import platform
from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

CGROUPS, OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
# The limit and the use of a control group, in the names of Linux' second and first version.
FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
# Its entries that are given back when memory is short.
RECLAIMED = ("inactive_file", "total_inactive_file")
# Parameters of mallopt, from glibc's malloc.h.
TRIM_THRESHOLD, MMAP_MAX = -1, -4


def free_memory(device: torch.device) -> int | None:
    """Return the bytes that this process may still take on a device, None where the device does not tell."""
    if device.type == "cpu":
        left = (max(most - used + reclaimable(folder), 0) for folder, most, used in limited_groups())
        return min([psutil.virtual_memory().available, *left])
    if device.type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def total_memory() -> int:
    """Return the bytes that this process may take at most: those of the machine, or of its smallest control group."""
    return min([psutil.virtual_memory().total, *(most for _, most, _ in limited_groups())])


def limited_groups(root: Path = CGROUPS, table: Path = OWN_CGROUPS) -> Iterator[tuple[Path, int, int]]:
    """Yield folder, limit and use in bytes of each control group of this process that has a limit."""
    for folder in cgroup_folders(root, table):
        for limit, usage in FILES:
            try:
                most, used = ((folder / name).read_text().strip() for name in (limit, usage))
            except OSError:
                continue
            if most.isdecimal() and used.isdecimal():
                yield folder, int(most), int(used)


def reclaimable(folder: Path) -> int:
    """Return the bytes of a control group that only keep files at hand."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    entries = dict(line.split(" ", 1) for line in lines if " " in line)
    return max((int(entries[name]) for name in RECLAIMED if name in entries), default=0)


def cgroup_folders(root: Path, table: Path) -> Iterator[Path]:
    """Yield the folders of the control groups that this process is in, from its own to the outermost."""
    try:
        lines = table.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds in ("", "memory"):
            top = root / kinds
            own = top / path.lstrip("/")
            yield own
            yield from (folder for folder in own.parents if folder == top or top in folder.parents)


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
