"""Set up every test: qkv importable from a bare checkout, no network, fixed seeds, memory that is poisoned until written.

`configuration`, `modeling` and `scripts` follow the folders of the source; suites that cut across modules lie beside this
file. `support` holds what they share: reference formulas, tiny models, official families. `hub` has a Hub on loopback
and its clients, `distributed` trainings in several processes, `golden` saved parameter names. Tables of configs are
YAML beside the tests that run over them.
"""

import gc
import os
from pathlib import Path

OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
os.environ.update(OFFLINE, TOKENIZERS_PARALLELISM="false", MPLBACKEND="Agg")
if "PYTEST_XDIST_WORKER" in os.environ:  # one core each: workers and what they start would fight for more
    os.environ["OMP_NUM_THREADS"] = "1"

import pytest  # noqa: E402  libraries read the environment on import

import checkout  # noqa: E402
import sampling  # noqa: E402

pytest_plugins = ["chromium_browser"]
FORKING = ("tests/distributed/", "tests/ecosystem/test_trainer.py")
os.environ["PYTHONPATH"] = checkout.PYTHONPATH


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--page", type=Path, help="where a suite with a page writes what was found")


def pytest_configure(config: pytest.Config) -> None:
    """Leave slow cases of sweeps uncollected where they would be deselected."""
    expression = config.option.markexpr
    sampling.collect_slow = not expression.startswith("not slow") or " or " in expression
    # Where others run the tests, PyTorch and qkv need not be loaded before they start.
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.import_plugin("every_test")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Run a module in one worker, and all that fork worlds of processes in the same one: what they fork starts once."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "forking" if nodeid.startswith(FORKING) else super()._split_scope(nodeid)

    return Scheduling(config, log) if config.getvalue("dist") == "loadscope" else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave tests of a GPU uncollected where all of them would be deselected."""
    return True if collection_path.name == "gpu" and config.option.markexpr.endswith("not gpu") else None


def pytest_collection() -> None:
    """Collect no garbage while tests are collected: these are a million objects, and all of them stay."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    sampling.draw_costly(items)
