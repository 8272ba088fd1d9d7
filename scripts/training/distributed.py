"""Decide things once for all processes, and rejoin the process group after torchrun restarted a dead one."""

import os
from collections.abc import Callable
from typing import TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import distributed
from torch.distributed import PrefixStore, Store, TCPStore

Result = TypeVar("Result")


def run_on_main(accelerator: Accelerator, function: Callable[[], Result]) -> Result:
    """Return the main process's result on every process; its OSError or ValueError is raised on all of them."""
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


def local_main_first(function: Callable[[], Result]) -> Result:
    """Call a function on one process of each machine before the others, which then find its caches.

    Accelerate's `local_main_process_first` would leave the others waiting after an error.
    """
    first = int(os.environ.get("LOCAL_RANK", 0)) == 0
    several = distributed.is_initialized()
    if several and not first:
        distributed.barrier()
    try:
        return function()
    finally:
        if several and first:
            distributed.barrier()


def agent_store() -> Store | None:
    """Return the store of the torchrun agent, which outlives its workers; None under any other launcher."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    return TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)


def init_elastic_process_group() -> None:
    """Join the process group of this attempt, if torchrun started us.

    Otherwise restarted workers would find the addresses of the dead ones in torchrun's store (torch 2.13).
    """
    store = agent_store()
    if store is None or distributed.is_initialized() or int(os.environ["WORLD_SIZE"]) == 1:
        return
    attempt = PrefixStore(f"attempt-{os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    distributed.init_process_group(backend, store=attempt, rank=rank, world_size=count)


def value_of_first_attempt(name: str, value: str) -> str:
    """Return the value that was given for this name when torchrun first started us, or else this one."""
    store = agent_store()
    return store.compare_set(f"qkv/{name}", "", value).decode() if store is not None else value
