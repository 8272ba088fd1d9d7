"""Fixtures of every test, and how PyTorch and qkv are set up for all of them."""

import gc
import os
import random

import numpy as np
import pytest
import torch

from qkv.modeling.fast_paths import first_tokens, unpadding
from qkv.modeling.heads import language_modeling
from qkv.scripts.common import phases

# A phase is named after a second, which a busy machine takes for anything; test_phases.py sets its own time.
phases.MOMENT = 3600.0

# Tiny models take the ways of large ones, so that every test compares them with a reference, too.
unpadding.CALL = language_modeling.LARGE = 0

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))

# Memory that nothing wrote reads as NaN, so a value that loading left uninitialised fails instead of passing by luck.
torch.use_deterministic_algorithms(True, warn_only=True)
torch.utils.deterministic.fill_uninitialized_memory = True


@pytest.fixture(autouse=True, scope="module")
def freeze() -> None:
    """Keep what is there out of garbage collections, collected tests and all: Trainer asks for one in each training."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def seed() -> None:
    """Start every test from the same random state, whatever ran before it."""
    random.seed(0)
    np.random.seed(0)
    # That of torch formats the stack each time, for devices that may come.
    torch.manual_seed(0) if torch.accelerator.is_available() else torch.default_generator.manual_seed(0)


@pytest.fixture
def plain_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all layers compute all tokens, padding and what no head reads too, for their outputs are compared."""
    monkeypatch.setattr(unpadding, "CALL", float("inf"))
    monkeypatch.setattr(first_tokens, "can_read_few", lambda *_: False)
