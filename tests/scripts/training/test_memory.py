"""A batch that does not fit into memory is answered with the fields that take the same step in less."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from qkv.scripts.recipes.loading import changed
from qkv.scripts.training.loop import Loop
from qkv.scripts.training.memory import out_of_memory_explained
from tiny_training import manager


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    """A training with 4 examples in a step."""
    yield manager(tmp_path / "run").loop


ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:118] . DefaultCPUAllocator: can't allocate memory: you tried"),
    MemoryError(),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_fewer_examples_at_once_are_named(loop: Loop, error: Exception) -> None:
    with pytest.raises(RuntimeError, match=r"batch_size=4 .*accumulate=2"), out_of_memory_explained(loop):
        raise error


def test_remedy_is_possible(loop: Loop) -> None:
    loop.recipe = changed(loop.recipe, accumulate=4)
    loop.loader.share = loop.loader.share.of(loop.accelerator, loop.recipe)
    with pytest.raises(RuntimeError, match="gradient_checkpointing=true"), out_of_memory_explained(loop):
        raise MemoryError
    type(loop.task).in_batch_negatives = True
    with pytest.raises(RuntimeError, match=r"model\.embedding_chunk_size"), out_of_memory_explained(loop):
        raise MemoryError
    with pytest.raises(RuntimeError, match="^shapes differ$"), out_of_memory_explained(loop):
        raise RuntimeError("shapes differ")
