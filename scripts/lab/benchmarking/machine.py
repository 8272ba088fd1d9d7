"""Measure the limits of a machine: products of matrices, and reading of memory."""

import os
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.functional import linear

from qkv.scripts.common.environment import processor
from qkv.scripts.lab.benchmarking.timing import seconds

REPEATS = 12
Product = tuple[int, int, int]
# Rows, inputs and outputs of products as the steps have them, and a square one; a GPU is full with larger ones alone.
PRODUCTS = ((1536, 768, 3072), (4096, 256, 1024), (2048, 2048, 2048))
LARGE = ((8192, 8192, 8192), (16384, 768, 3072))
# FLOP/s in bfloat16 that makers tell, of dense products.
TOLD = {"H100 PCIe": 756e12, "H100": 989e12, "H200": 989e12, "A100": 312e12}
# Bytes that are read: more than caches hold.
READ, READ_ON_GPU = 2**28, 2**32


def best(step: Callable[[], object], repeats: int) -> float:
    """Return the least seconds of several runs, after one that does not count."""
    seconds(step)
    return min(seconds(step) for _ in range(repeats))


def gemm_peak(
    device: torch.device, dtype: torch.dtype, products: Sequence[Product] = (), repeats: int = REPEATS
) -> float:
    """Return the most FLOP/s of a product of matrices, of those that fill the device unless others are given."""
    peaks = []
    for rows, inner, columns in products or (PRODUCTS if device.type == "cpu" else LARGE):
        left = torch.randn(rows, inner, device=device, dtype=dtype)
        right = torch.randn(columns, inner, device=device, dtype=dtype)
        peaks.append(2 * rows * inner * columns / best(lambda: linear(left, right), repeats))  # noqa: B023
    return max(peaks)


def bandwidth(device: torch.device, dtype: torch.dtype, repeats: int = REPEATS) -> float:
    """Return the most bytes/s at which memory is read: by a sum, or by a matrix times a vector."""
    size = READ if device.type == "cpu" else READ_ON_GPU
    columns = 4096
    matrix = torch.ones(size // (columns * dtype.itemsize), columns, device=device, dtype=dtype)
    vector = torch.ones(columns, device=device, dtype=dtype)
    least = min(best(lambda: matrix.sum(), repeats), best(lambda: torch.mv(matrix, vector), repeats))
    return matrix.nbytes / least


def driver() -> str:
    """Return the version of NVIDIA's driver, "" where it does not tell."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return ""


def describe(device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Measure the machine, and return what it is and what it reaches."""
    name = processor() if device.type == "cpu" else torch.cuda.get_device_name(device)
    gpu = {} if device.type == "cpu" else {"driver": driver(), "cuda": torch.version.cuda}
    told = next((most for card, most in TOLD.items() if card in name), None) if dtype == torch.bfloat16 else None
    return {
        **gpu,
        **({"told_flops": told} if told else {}),
        "device": device.type,
        "name": name,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "dtype": str(dtype).removeprefix("torch."),
        "gemm_flops": gemm_peak(device, dtype),
        "bandwidth_bytes": bandwidth(device, dtype),
    }
