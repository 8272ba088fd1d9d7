"""The tests that transformers runs on its own models, imported from its source distribution or from a checkout.

The source distribution on PyPI has `tests/test_*.py` and nothing else of the tests. What these import beside it comes
from a checkout if TRANSFORMERS_SOURCE names one, else from the stand-ins here: two mixins without tests.
"""

import importlib.util
import os
import socket
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch.distributed as dist
import torch.multiprocessing as processes

# The root of a checkout or of an unpacked source distribution; `make common-suite` downloads one.
SOURCE = Path(os.environ.get("TRANSFORMERS_SOURCE", "nowhere"))
PACKAGE = "transformers_tests"


class GenerationTesterMixin:
    """Has tests in a checkout alone."""


class ExportTesterMixin:
    """Has tests in a checkout alone."""


def run_rank(rank: int, world_size: int, port: int, module: str, name: str, arguments: Any) -> None:
    """Call a function of the tests in one of several processes that talk over gloo."""
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world_size)
    )
    load_tests()
    dist.init_process_group("gloo")
    try:
        getattr(import_module(module), name)(rank, *arguments)
    finally:
        dist.destroy_process_group()


def run_distributed(world_size: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return what makes a function run in so many processes, each with its rank as the first argument."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: object) -> None:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            # A new process finds this module, and by it the package of the tests.
            names = (function.__module__, function.__name__)
            processes.spawn(run_rank, (world_size, port, *names, arguments), nprocs=world_size)

        return run

    return decorate


STAND_INS: dict[str, dict[str, Any]] = {
    "generation": {},
    "generation.test_utils": {"GenerationTesterMixin": GenerationTesterMixin},
    "exporters": {},
    "exporters.test_export": {"ExportTesterMixin": ExportTesterMixin},
    "distributed_testing_utils": {"run_distributed": run_distributed},
}


def load_tests() -> None:
    """Make the tests of transformers importable as a package."""
    tests = SOURCE / "tests"
    spec = importlib.util.spec_from_loader(PACKAGE, loader=None, is_package=True)
    assert spec is not None and spec.submodule_search_locations is not None
    spec.submodule_search_locations.append(str(tests))
    sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
    for name, members in STAND_INS.items():
        path = tests.joinpath(*name.split("."))
        if not path.with_suffix(".py").exists() and not path.is_dir():
            stand_in = ModuleType(f"{PACKAGE}.{name}")
            stand_in.__path__ = []
            vars(stand_in).update(members)
            sys.modules[stand_in.__name__] = stand_in
