"""The tests that transformers runs on its own models, imported from its source distribution or from a checkout.

The source distribution on PyPI has `tests/test_*.py` and nothing else of the tests. What these import beside it comes
from a checkout if TRANSFORMERS_SOURCE names one, else from the stand-ins here: two mixins without tests, and what starts
processes that talk over gloo.

The tests of generation may be those of another version: a file `FROM` beside them says in a few words of which.
"""

import importlib.util
import multiprocessing
import os
import pickle
import socket
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, PreTrainedConfig, PreTrainedModel

import tables

# The root of a checkout or of an unpacked source distribution; `make common-suite` downloads one.
SOURCE = Path(os.environ.get("TRANSFORMERS_SOURCE", "nowhere"))
PACKAGE = "transformers_tests"
GENERATION = SOURCE / "tests" / "generation"
# Processes that are started find rank_modules; last, for those of other tests want the conftest of all.
os.environ["PYTHONPATH"] = os.pathsep.join((os.environ.get("PYTHONPATH", ""), str(Path(__file__).parent)))


class GenerationTesterMixin:
    """Has tests in a checkout alone."""


class ExportTesterMixin:
    """Has tests in a checkout alone."""


class LanguageModel:
    """An Auto class of decoders and encoder-decoders: the tests of FSDP know decoders alone."""

    @staticmethod
    def auto_class(config: PreTrainedConfig) -> Any:
        return AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM

    @classmethod
    def from_config(cls, config: PreTrainedConfig) -> PreTrainedModel:
        return cls.auto_class(config).from_config(config)

    @classmethod
    def from_pretrained(cls, folder: str, **kwargs: object) -> PreTrainedModel:
        return cls.auto_class(AutoConfig.from_pretrained(folder)).from_pretrained(folder, **kwargs)


def load_fsdp() -> Any:
    """Import the tests of FSDP, for all models that have a plan."""
    module: Any = import_module(f"{PACKAGE}.test_fsdp_mixin")
    module.AutoModelForCausalLM, module.FSDP_DISTRIBUTED_TEST_MODEL_TYPES = LanguageModel, None
    return module


def run_rank(rank: int, pickled: bytes) -> None:
    """Call a function of the tests in one of several processes; what names it is read when it can be imported."""
    torch.set_num_threads(1)  # there are as many of these processes as cores
    function, arguments = pickle.loads(pickled)
    function(rank, *arguments)


def start_ranks(function: Callable[..., None], args: tuple[Any, ...], nprocs: int) -> None:
    """Call a function in so many processes, each with its rank as the first argument."""
    multiprocessing.set_forkserver_preload(["rank_modules"])
    pickled = pickle.dumps((function, args))
    processes.start_processes(run_rank, (pickled,), nprocs=nprocs, start_method="forkserver")


def in_group(rank: int, world_size: int, port: int, module: str, name: str, arguments: Any) -> None:
    """Call a function of the tests in a group of processes."""
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world_size)
    )
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
            # By its name, for the module has what this returns under the same one.
            names = (function.__module__, function.__name__)
            start_ranks(in_group, (world_size, port, *names, arguments), world_size)

        return run

    return decorate


def inapplicable() -> dict[str, dict[str, str]]:
    """Return {test: {family: why it does not apply}} of the tests that are there; what is not here must pass."""
    tables_of_generation = tables.beside(__file__, "generation.yaml") if GENERATION.is_dir() else {"any": {}}
    other_version = tables_of_generation["other_version"] if (GENERATION / "FROM").exists() else {}
    return {**tables.beside(__file__, "test_models.yaml"), **tables_of_generation["any"], **other_version}


STAND_INS: dict[str, dict[str, Any]] = {
    "generation": {},
    "generation.test_utils": {"GenerationTesterMixin": GenerationTesterMixin},
    "exporters": {},
    "exporters.test_export": {"ExportTesterMixin": ExportTesterMixin},
    "distributed_testing_utils": {
        "run_distributed": run_distributed,
        "_start_rank_processes": start_ranks,
        "_get_distributed_backend": lambda: "gloo",
        "_get_distributed_device_type": lambda: "cpu",
        "_get_rank_device": lambda rank: torch.device("cpu"),
        "_set_rank_device": lambda rank: None,
    },
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
