"""Capture and restore the state of a training, on all processes together: tensors by parameter name, and JSON."""

import random
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object, set_seed
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from qkv.scripts.training.accelerator import FULL, data_parallel
from qkv.scripts.training.checkpoint import Tensors
from qkv.scripts.training.loop import Loop

MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"


def capture(loop: Loop) -> tuple[Tensors, dict[str, Any]]:
    """Return tensors by file, and the rest as JSON; complete on the main process only."""
    optimizer: Any = get_optimizer_state_dict(loop.model, loop.optimizer.optimizer, options=FULL)
    moments = {
        f"{name}:{key}": value for name, kept in optimizer.get("state", {}).items() for key, value in kept.items()
    }
    # Of all processes, in the order of their ranks.
    ranks: list[Any] = gather_object([(loop.loader.states, rng_state())])
    files = {MODEL: weights(loop), OPTIMIZER: moments}
    facts = {
        "step": loop.done,
        "processes": len(ranks),
        "param_groups": optimizer.get("param_groups"),
        "schedule": loop.schedule.state_dict(),
        "loader": {name: position for loader, _ in ranks for name, position in loader.items()},
        "random": [states for _, states in ranks],
    }
    return {file: {name: value.contiguous() for name, value in held.items()} for file, held in files.items()}, facts


def restore(loop: Loop, tensors: Tensors, facts: dict[str, Any]) -> None:
    """Restore a captured state; only the main process needs the tensors."""
    # The optimizer comes first, as torch has it take an empty step to make its state.
    load_optimizer(loop, tensors, facts)
    load_weights(loop, tensors.get(MODEL, {}))
    loop.done = facts["step"]
    loop.schedule.load_state_dict(facts["schedule"])
    # The latest step again, for more `max_steps` may have changed the learning rate of the next.
    loop.schedule.last_epoch -= 1
    loop.schedule.step()
    if facts["loader"]:
        loader: Any = loop.loader
        loader.restore(facts["loader"])
    rank, _ = data_parallel(loop.accelerator)
    if rank < facts["processes"]:
        set_rng_state(facts["random"][rank])
    else:
        seed(loop.recipe.seed, loop.done, rank)


def weights(loop: Loop) -> dict[str, Any]:
    """Gather the model's weights on the main process, tied ones once."""
    state, tied = get_model_state_dict(loop.model, options=FULL), tied_weights(loop)
    return {name: weight for name, weight in state.items() if name not in tied}


def load_weights(loop: Loop, weights: dict[str, Tensor]) -> None:
    """Load the main process's weights into the model, tied ones from their source."""
    tied = {name: weights[source] for name, source in tied_weights(loop).items() if source in weights}
    full: Any = {**weights, **tied}
    set_model_state_dict(loop.model, full, options=broadcast_options(loop))


def load_optimizer(loop: Loop, tensors: Tensors, facts: dict[str, Any]) -> None:
    """Load the main process's moments into the optimizer."""
    state: dict[str, Any] = {"state": {}, "param_groups": facts["param_groups"]}
    for key, value in tensors.get(OPTIMIZER, {}).items():
        name, _, moment = key.rpartition(":")
        state["state"].setdefault(name, {})[moment] = value
    options = broadcast_options(loop)
    set_optimizer_state_dict(loop.model, loop.optimizer.optimizer, state if tensors else {}, options=options)


def broadcast_options(loop: Loop) -> StateDictOptions:
    """Return options that send the main process's state to all processes."""
    several = loop.accelerator.num_processes > 1
    return StateDictOptions(full_state_dict=True, cpu_offload=not several, broadcast_from_rank0=several)


def tied_weights(loop: Loop) -> dict[str, str]:
    """Return the name of each tied weight, and the name that is saved."""
    model: nn.Module = loop.accelerator.unwrap_model(loop.model)
    return getattr(model, "all_tied_weights_keys", {})


def rng_state() -> dict[str, Any]:
    """Return the states of this process's random generators as JSON."""
    legacy: Any = np.random.get_state()
    name, keys, *rest = legacy
    cuda = torch.cuda.get_rng_state().tolist() if torch.cuda.is_available() else None
    numpy = [name, keys.tolist(), *rest]
    return {"torch": torch.get_rng_state().tolist(), "cuda": cuda, "python": random.getstate(), "numpy": numpy}


def set_rng_state(states: dict[str, Any]) -> None:
    """Restore the states of the random generators."""
    torch.set_rng_state(torch.tensor(states["torch"], dtype=torch.uint8))
    if torch.cuda.is_available() and states["cuda"]:
        torch.cuda.set_rng_state(torch.tensor(states["cuda"], dtype=torch.uint8))
    version, keys, gauss = states["python"]
    random.setstate((version, tuple(keys), gauss))
    np.random.set_state(tuple(states["numpy"]))


def seed(*numbers: int) -> None:
    """Seed all random generators by several numbers."""
    set_seed(int(np.random.SeedSequence(numbers).generate_state(1)[0]))
