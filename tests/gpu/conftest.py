"""Tests of a GPU alone: `make gpu`; skipped where there is none, but for a rehearsal. Models have heads of 16 and more."""

from collections.abc import Iterator
from unittest import mock

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

from flex_stand_in import flex_attention
from qkv.modeling import execution
from qkv.modeling.fast_paths import flex_blocks, varlen
from qkv.modeling.fast_paths.cudnn_first import CudnnPlan
from qkv.modeling.fast_paths.flex_blocks import FlexKernel, FlexPlan
from qkv.modeling.fast_paths.varlen import VarlenKernel, VarlenPlan
from varlen_stand_in import varlen_attn


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rehearse", action="store_true", help="on a CPU, with stand-ins of the kernels of attention")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if "tests/gpu/" in item.path.as_posix():
            item.add_marker(pytest.mark.gpu)
            unable = not (torch.cuda.is_available() or config.getoption("--rehearse", default=False))
            item.add_marker(pytest.mark.skipif(unable, reason="no NVIDIA GPU"))


@pytest.fixture(autouse=True)
def stand_ins() -> Iterator[None]:
    """On a CPU stand in for the kernels, and open the ways of a GPU alone."""
    if torch.cuda.is_available():
        yield
        return
    varlen_kernel = VarlenKernel(varlen_attn, (torch.bfloat16, torch.float16), work=0)
    varlen_row = mock.patch.dict(varlen.VARLEN_KERNELS, cpu=varlen_kernel)
    flex_row = mock.patch.dict(flex_blocks.FLEX_KERNELS, cpu=FlexKernel(flex_attention, create_block_mask))
    with varlen_row, flex_row, mock.patch.object(execution, "PLANS", [VarlenPlan, FlexPlan, CudnnPlan]):
        yield


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
