"""Set up every test: qkv importable from a bare checkout, no network, fixed seeds, memory that is poisoned until written.

`configuration`, `modeling` and `scripts` follow the folders of the source; suites that cut across modules lie beside this
file. `support` holds what they share: reference formulas, tiny models, official families. `hub` has a Hub on loopback
and its clients, `distributed` trainings in several processes, `golden` saved parameter names. Tables of configs are
YAML beside the tests that run over them.
"""

import gc
import os
import random
from pathlib import Path

OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
os.environ.update(OFFLINE, TOKENIZERS_PARALLELISM="false", MPLBACKEND="Agg")
if "PYTEST_XDIST_WORKER" in os.environ:  # one core each: workers and what they start would fight for more
    os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np  # noqa: E402  the environment is read on import
import pytest  # noqa: E402
import torch  # noqa: E402

import checkout  # noqa: E402
import sampling  # noqa: E402
from qkv.modeling.fast_paths import first_tokens, unpadding  # noqa: E402
from qkv.modeling.heads import language_modeling  # noqa: E402
from qkv.scripts.common import phases  # noqa: E402

pytest_plugins = ["chromium_browser"]
os.environ["PYTHONPATH"] = checkout.PYTHONPATH

# A phase is named after a second, which a busy machine takes for anything; test_phases.py sets its own time.
phases.MOMENT = 3600.0

# Tiny models take the ways of large ones, so that every test compares them with a reference, too.
unpadding.CALL = language_modeling.LARGE = 0

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))

# Memory that nothing wrote reads as NaN, so a value that loading left uninitialised fails instead of passing by luck.
torch.use_deterministic_algorithms(True, warn_only=True)
torch.utils.deterministic.fill_uninitialized_memory = True


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--page", type=Path, help="where a suite with a page writes what was found")


def pytest_configure(config: pytest.Config) -> None:
    """Leave slow cases of sweeps uncollected where they would be deselected."""
    expression = config.option.markexpr
    sampling.collect_slow = not expression.startswith("not slow") or " or " in expression


def pytest_collection() -> None:
    """Collect no garbage while tests are collected: these are a million objects, and all of them stay."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    sampling.draw_costly(items)


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
