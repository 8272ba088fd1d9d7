"""Decide once for all processes, and rejoin the process group after torchrun has restarted a process."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import distributed
from torch.distributed import PrefixStore, Store, TCPStore
from torch.distributed.fsdp import FSDPModule

Result = TypeVar("Result")


def run_on_main(accelerator: Accelerator, function: Callable[[], Result]) -> Result:
    """Return the main process's result on every process, or raise its OSError or ValueError there."""
    answer: list[object] = [None, None]
    if accelerator.is_main_process:
        try:
            answer[0] = function()
        except (OSError, ValueError) as error:
            answer[1] = error
    result, failure = broadcast_object_list(answer)
    if failure is not None:
        raise failure
    return result


def model_class(model: Any) -> Any:
    """Return the class of a model before FSDP2 made a subclass of it."""
    return next(base for base in type(model).__mro__ if not issubclass(base, FSDPModule))


def agent_store() -> Store | None:
    """Return the store of the torchrun agent, which outlives its workers; None under another launcher."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    return TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)


def init_elastic_process_group() -> None:
    """Join the process group of this attempt of torchrun, whose store still has the addresses of dead workers."""
    store = agent_store()
    if store is None or distributed.is_initialized() or int(os.environ["WORLD_SIZE"]) == 1:
        return
    attempt = PrefixStore(f"attempt-{os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    distributed.init_process_group(backend, store=attempt, rank=rank, world_size=count)


def value_of_first_attempt(name: str, value: str) -> str:
    """Return the value of a name in the first attempt of torchrun, or this one."""
    store = agent_store()
    return store.compare_set(f"qkv/{name}", "", value).decode() if store is not None else value
