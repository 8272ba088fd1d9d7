"""What do several processes need to be one program? To decide things once, and to start again when one has died."""

import os
from collections.abc import Callable
from typing import TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import distributed
from torch.distributed import PrefixStore, Store, TCPStore

Found = TypeVar("Found")


def agreed(accelerator: Accelerator, decide: Callable[[], Found]) -> Found:
    """What the main process finds, on every process; an OSError or ValueError there is raised everywhere."""
    answer: list[object] = [None, None]
    if accelerator.is_main_process:
        try:
            answer[0] = decide()
        except (OSError, ValueError) as error:
            answer[1] = error
    found, refusal = broadcast_object_list(answer)
    if refusal is not None:
        raise refusal
    return found


def in_turn(make: Callable[[], Found]) -> Found:
    """What is made by one process of each machine before the others: they find in caches what took it long."""
    first = int(os.environ.get("LOCAL_RANK", 0)) == 0
    several = distributed.is_initialized()
    if several and not first:
        distributed.barrier()
    try:
        return make()
    finally:
        # Also after an error, which the others then make too.
        if several and first:
            distributed.barrier()


def agent_store() -> Store | None:
    """The store of the torchrun agent, which outlives the processes it starts; None under any other launcher."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    return TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)


def join() -> None:
    """Join the process group of this attempt, if torchrun started us.

    Without that, processes that torchrun started again find the addresses of the dead ones in its store (torch 2.13).
    """
    store = agent_store()
    if store is None or distributed.is_initialized() or int(os.environ["WORLD_SIZE"]) == 1:
        return
    attempt = PrefixStore(f"attempt-{os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    distributed.init_process_group(backend, store=attempt, rank=rank, world_size=count)


def lasting(name: str, value: str) -> str:
    """The value that this name had when torchrun first started us, or else this one."""
    store = agent_store()
    return store.compare_set(f"qkv/{name}", "", value).decode() if store is not None else value
