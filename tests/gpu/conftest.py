"""Tests of a GPU alone: `make gpu`, in five minutes; skipped where there is none. Models have heads of 16 and more."""

from collections.abc import Iterator

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if "tests/gpu/" in item.path.as_posix():
            item.add_marker(pytest.mark.gpu)
            item.add_marker(pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU"))


@pytest.fixture(autouse=True)
def single_precision() -> Iterator[None]:
    """Multiply in whole single precision, and leave nothing to the next test."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.set_float32_matmul_precision(before)
    if torch.cuda.is_available():
        torch.cuda.set_sync_debug_mode("default")
        torch.cuda.empty_cache()
