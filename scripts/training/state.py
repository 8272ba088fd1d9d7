"""What is the state of a training? Tensors by parameter name and JSON, the same for any engine and number of processes.

Every function here that takes a loop is called by all processes together.
"""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from accelerate.utils import broadcast_object_list, gather_object
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from qkv.scripts.training import deepspeed as zero
from qkv.scripts.training.accelerator import data_parallel
from qkv.scripts.training.ema import pieces
from qkv.scripts.training.loop import Loop

Tensors = dict[str, dict[str, Tensor]]
MODEL, OPTIMIZER, RANDOM = "model.safetensors", "optimizer.safetensors", "random.safetensors"
AVERAGE = "average.safetensors"
# Gathered from all processes to the main one.
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


def capture(loop: Loop) -> tuple[Tensors, dict[str, Any]]:
    """Tensors by file and all else as JSON; whole on the main process, nothing to rely on elsewhere."""
    moments = optimizer_state(loop)
    state = {f"{name}:{key}": value for name, kept in moments.get("state", {}).items() for key, value in kept.items()}
    generators, numbers = randomness()
    # The parts of all processes, in the order of their ranks.
    parts: list[Any] = gather_object([(loop.feed.state(), generators, numbers)])
    drawn = {f"{rank}:{name}": value for rank, part in enumerate(parts) for name, value in part[1].items()}
    files = {MODEL: weights(loop), OPTIMIZER: state, RANDOM: drawn}
    if loop.average:
        with loop.kept():
            files[AVERAGE] = {name: weight.clone() for name, weight in weights(loop).items()}
    scaler = loop.accelerator.scaler
    facts = {
        "step": loop.done,
        "processes": len(parts),
        "param_groups": moments.get("param_groups"),
        "schedule": loop.schedule.state_dict(),
        "scaler": scaler.state_dict() if scaler is not None else None,
        "averaged": loop.average.steps if loop.average else 0,
        "feed": united([part[0] for part in parts]),
        "random": [part[2] for part in parts],
    }
    return {name: {key: value.contiguous() for key, value in found.items()} for name, found in files.items()}, facts


def adopt(loop: Loop, tensors: Tensors, facts: dict[str, Any]) -> None:
    """Bring a loop to the state that `capture` found; only the main process needs to have the tensors."""
    drawn: dict[str, Tensor]
    (drawn,) = broadcast_object_list([tensors.get(RANDOM)])
    # First the optimizer: torch lets it take a step, of no length, to have something to fill.
    fill_optimizer(loop, tensors, facts)
    if loop.average:
        fill(loop, tensors.get(AVERAGE, {}))
        torch._foreach_copy_(pieces(loop.average.weights.values()), loop.average.now())
        loop.average.steps = facts["averaged"]
    fill(loop, tensors.get(MODEL, {}))
    loop.schedule.load_state_dict(facts["schedule"])
    if loop.accelerator.scaler is not None:
        loop.accelerator.scaler.load_state_dict(facts["scaler"])
    loop.done = facts["step"]
    loop.feed.restore(facts["feed"])
    # Those that compute one thing together draw alike.
    rank, _ = data_parallel(loop.accelerator)
    if rank < facts["processes"]:
        generators = {name.partition(":")[2]: value for name, value in drawn.items() if name.startswith(f"{rank}:")}
        randomize(generators, facts["random"][rank])
    else:
        seed(loop.recipe.seed, loop.done, rank)


def put(loop: Loop, tensors: Tensors) -> None:
    """Give the model the weights that a checkpoint was to be judged by; only the main process needs to have them."""
    fill(loop, tensors.get(AVERAGE, tensors.get(MODEL, {})))


def weights(loop: Loop) -> dict[str, Any]:
    """The model's weights, each once."""
    in_zero = zero.is_zero(loop.accelerator)
    found = zero.weights(loop.model) if in_zero else get_model_state_dict(loop.model, options=WHOLE)
    return {name: weight for name, weight in found.items() if name not in ties(loop)}


def optimizer_state(loop: Loop) -> dict[str, Any]:
    """The optimizer's moments and groups, by the names of parameters."""
    if zero.is_zero(loop.accelerator):
        return zero.moments(loop.model)
    return dict(get_optimizer_state_dict(loop.model, inner(loop.optimizer), options=WHOLE))


def fill(loop: Loop, found: dict[str, Tensor]) -> None:
    """Give the model the weights of the main process."""
    whole: Any = {**found, **{name: found[source] for name, source in ties(loop).items() if source in found}}
    if zero.is_zero(loop.accelerator):
        zero.put_weights(loop.model, whole)
    else:
        set_model_state_dict(loop.model, whole, options=spread(loop))


def fill_optimizer(loop: Loop, tensors: Tensors, facts: dict[str, Any]) -> None:
    """Give the optimizer the moments of the main process."""
    moments: dict[str, Any] = {"state": {}, "param_groups": facts["param_groups"]}
    for key, value in tensors.get(OPTIMIZER, {}).items():
        name, _, kept = key.rpartition(":")
        moments["state"].setdefault(name, {})[kept] = value
    if zero.is_zero(loop.accelerator):
        zero.put_moments(loop.model, moments)
    else:
        given = moments if tensors else {}
        set_optimizer_state_dict(loop.model, inner(loop.optimizer), given, options=spread(loop))


def spread(loop: Loop) -> StateDictOptions:
    """How what one process has read comes to all."""
    several = loop.accelerator.num_processes > 1
    return StateDictOptions(full_state_dict=True, cpu_offload=not several, broadcast_from_rank0=several)


def united(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All that the processes say about where they are, group by group; what more than one says is the same."""
    whole: dict[str, Any] = {}
    for state in states:
        for name, value in state.items():
            nested = isinstance(value, dict) and name in whole
            whole[name] = united([whole[name], value]) if nested else value
    return whole


def inner(optimizer: Any) -> torch.optim.Optimizer:
    """The optimizer that Accelerate has wrapped."""
    return getattr(optimizer, "optimizer", optimizer)


def ties(loop: Loop) -> dict[str, str]:
    """The names of weights that are others by another name."""
    model: nn.Module = loop.accelerator.unwrap_model(loop.model)
    return getattr(model, "all_tied_weights_keys", {})


def randomness() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state of this process's random numbers: torch's as tensors, Python's and NumPy's as JSON."""
    generators = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        generators["cuda"] = torch.cuda.get_rng_state()
    legacy: Any = np.random.get_state()
    name, keys, *rest = legacy
    return generators, {"python": random.getstate(), "numpy": [name, keys.tolist(), *rest]}


def randomize(generators: dict[str, Tensor], numbers: dict[str, Any]) -> None:
    """Go on with random numbers from where `randomness` was asked."""
    torch.set_rng_state(generators["cpu"])
    if torch.cuda.is_available() and "cuda" in generators:
        torch.cuda.set_rng_state(generators["cuda"])
    version, keys, gauss = numbers["python"]
    random.setstate((version, tuple(keys), gauss))
    np.random.set_state(tuple(numbers["numpy"]))


def seed(*numbers: int) -> None:
    """Fresh random numbers, others for other numbers."""
    start = int(np.random.SeedSequence(numbers).generate_state(1)[0])
    random.seed(start)
    np.random.seed(start)
    torch.manual_seed(start)
