"""Models for a GPU, and what is compared: values and gradients on one device or another, in one dtype or another."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from qkv import QkvDecoderConfig, QkvDecoderForCausalLM, QkvEncoderConfig, QkvEncoderForMaskedLM
from qkv.modeling.fast_paths import flex_blocks

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = {"vocab_size": 97, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16}
SIZES |= {"intermediate_size": 96, "max_position_embeddings": 64, "sliding_window": 5, "block_size": 4}
SIZES |= {"text_length": 2, "grid_columns": 4, "grid_kernel": 3, "fixed_columns": 1}
CLASSES = {"encoder": (QkvEncoderConfig, QkvEncoderForMaskedLM), "decoder": (QkvDecoderConfig, QkvDecoderForCausalLM)}
LENGTH = 40
IDS = torch.randint(5, 97, (3, LENGTH), generator=torch.Generator().manual_seed(0))
RIGHT = (torch.arange(LENGTH) < torch.tensor([[33], [9], [40]])).long()
MASKS = {"none": None, "right": RIGHT, "left": RIGHT.flip(1)}


def needs_cuda(part: str) -> pytest.MarkDecorator:
    """Step aside in a rehearsal, which has no part of CUDA but its kernels of attention."""
    return pytest.mark.skipif(DEVICE == "cpu", reason=f"needs CUDA's {part}")


def build(stack: str, **fields: Any) -> Any:
    """A model whose parameters are all different."""
    torch.manual_seed(0)
    config_class, model_class = CLASSES[stack]
    model = model_class(config_class(**{**SIZES, **fields}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def batch_of(stack: str, mask: Tensor | None) -> dict[str, Any]:
    """Tokens, and labels of real ones: a fifth of them for an encoder."""
    due = torch.ones_like(IDS) if mask is None else mask
    due = due * (torch.arange(LENGTH) % 5 == 2) if stack == "encoder" else due
    inputs = {"input_ids": IDS, "labels": IDS.masked_fill(due == 0, -100)}
    return inputs | ({} if mask is None else {"attention_mask": mask})


def long_batch(given: str = "left") -> dict[str, Any]:
    """Texts of several blocks: whole, packed, or with padding in front."""
    ids = torch.randint(5, 97, (2, 300), generator=torch.Generator().manual_seed(1))
    inputs = {"input_ids": ids, "labels": ids}
    if given == "packed":
        ends = torch.tensor([0, 100, 101, 300], dtype=torch.int32)
        return inputs | {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends}
    real = (torch.arange(300) >= torch.tensor([[170], [0]])).long()
    return (
        inputs if given == "whole" else {**inputs, "labels": ids.masked_fill(real == 0, -100), "attention_mask": real}
    )


@contextmanager
def by_blocks() -> Iterator[mock.Mock]:
    """Let flex attention take patterns however little they skip, and yield its kernel."""
    rows = flex_blocks.FLEX_KERNELS
    kernel = rows[DEVICE]
    attend = mock.Mock(wraps=kernel.attend)
    small = kernel._replace(attend=attend, work=-float("inf"))
    with mock.patch.dict(rows, {DEVICE: small}), mock.patch.object(flex_blocks, "SHARE", float("inf")):
        yield attend


def moved(inputs: dict[str, Any], device: str) -> dict[str, Any]:
    """The same on a device."""
    return {name: each.to(device) if isinstance(each, Tensor) else each for name, each in inputs.items()}


def learned(model: Any, inputs: dict[str, Any], device: str = DEVICE, dtype: torch.dtype | None = None) -> list[Tensor]:
    """The loss and its gradients, on the CPU in double precision."""
    model = model.to(device, dtype or next(model.parameters()).dtype).train()
    model.zero_grad()
    loss = model(**moved(inputs, device)).loss
    loss.backward()
    found = [loss.detach(), *(each.grad for each in model.parameters() if each.grad is not None)]
    return [each.double().cpu() for each in found]


def distance(actual: list[Tensor], expected: list[Tensor]) -> float:
    """The largest relative distance of a tensor from the expected one."""
    pairs = zip(actual, expected, strict=True)
    return max(float((one - other).norm() / (other.norm() + 1e-3)) for one, other in pairs)
