"""A step without numbers takes the memory and sends the bytes of the real one."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile
from torch.testing._internal.distributed.fake_pg import FakeStore

from qkv.scripts.training.plan import step
from qkv.scripts.training.plan_ledger import Ledger
from qkv.scripts.training.plan_step import Setup, simulate, take
from qkv.scripts.training.plan_subject import Subject, find
from qkv.scripts.training.plan_traffic import Traffic

WIDE = ["hidden_size=64", "num_hidden_layers=2", "num_attention_heads=4", "vocab_size=301"]
TEXT = [*WIDE, "max_position_embeddings=64"]
SUBJECTS = {
    "gpt2": TEXT,
    "bert_base": TEXT,
    "t5_small": [*TEXT, "intermediate_size=128"],
    "vit_base_16": [*WIDE, "image_size=32", "patch_size=8"],
}


def here(**fields: Any) -> Setup:
    return Setup(**{"world_size": 1, "strategy": "ddp", "batch": 4, "precision": "fp32", "fused": False, **fields})


def real(subject: Subject, setup: Setup) -> tuple[Any, Any, dict[str, torch.Tensor]]:
    """A model with numbers after its first step."""
    model = subject.build(fused=False)
    if setup.checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    batch = subject.inputs(setup.batch)
    take(model, optimizer, batch, setup, Ledger())
    return model, optimizer, batch


def allocated(action: Any) -> int:
    """Bytes that torch's allocator gives out at the most, beyond what it has given before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        action()
    now = peak = 0
    for event in found.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("name", SUBJECTS)
def test_memory_is_what_the_allocator_gives_out(name: str, checkpointing: bool) -> None:
    subject, setup = find(name, SUBJECTS[name], None), here(checkpointing=checkpointing)
    memory = simulate(subject, setup).memory
    model, optimizer, batch = real(subject, setup)
    assert memory["weights"] == sum(weight.nbytes for weight in model.parameters())
    assert memory["optimizer"] == sum(value.nbytes for state in optimizer.state.values() for value in state.values())
    measured = allocated(lambda: take(model, optimizer, batch, setup, Ledger()))
    measured += sum(value.nbytes for value in batch.values())
    predicted = sum(memory.values()) - memory["weights"] - memory["optimizer"]
    assert predicted == pytest.approx(measured, rel=0.01)
