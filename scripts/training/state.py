"""Capture and restore the state of a training: tensors by parameter name and JSON.

The state does not depend on the strategy or the number of processes. All functions that take a loop are called by all
processes together.
"""

import random
from typing import Any

import numpy as np
import torch
from accelerate.utils import broadcast_object_list, gather_object, set_seed
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from qkv.scripts.training import deepspeed
from qkv.scripts.training.accelerator import FULL, data_parallel, full_weights
from qkv.scripts.training.checkpoint import Tensors
from qkv.scripts.training.loop import Loop

MODEL, OPTIMIZER, RANDOM, AVERAGED = (f"{name}.safetensors" for name in ("model", "optimizer", "random", "ema"))


def capture(loop: Loop) -> tuple[Tensors, dict[str, Any]]:
    """Return tensors by file, and everything else as JSON; complete on the main process only."""
    optimizer = optimizer_state(loop)
    moments = {
        f"{name}:{key}": value for name, kept in optimizer.get("state", {}).items() for key, value in kept.items()
    }
    generators, numbers = rng_state()
    # Of all processes, in the order of their ranks.
    ranks: list[Any] = gather_object([(loop.loader.state_dict(), generators, numbers)])
    random_states = {
        f"{rank}:{name}": value for rank, (_, states, _) in enumerate(ranks) for name, value in states.items()
    }
    files = {MODEL: weights(loop), OPTIMIZER: moments, RANDOM: random_states}
    if loop.ema:
        with loop.averaged():
            files[AVERAGED] = {name: weight.clone() for name, weight in weights(loop).items()}
    scaler = loop.accelerator.scaler
    facts = {
        "step": loop.done,
        "processes": len(ranks),
        "param_groups": optimizer.get("param_groups"),
        "schedule": loop.schedule.state_dict(),
        "scaler": scaler.state_dict() if scaler is not None else None,
        "ema_steps": loop.ema.steps if loop.ema else 0,
        "loader": {"shards": {name: position for loader, _, _ in ranks for name, position in loader.items()}},
        "random": [numbers for _, _, numbers in ranks],
    }
    return {file: {name: value.contiguous() for name, value in held.items()} for file, held in files.items()}, facts


def restore(loop: Loop, tensors: Tensors, facts: dict[str, Any]) -> None:
    """Restore a captured state; only the main process needs the tensors."""
    random_states: dict[str, Tensor]
    (random_states,) = broadcast_object_list([tensors.get(RANDOM)])
    # First the optimizer: torch has it take a step of no length, to have a state to load into.
    load_optimizer(loop, tensors, facts)
    if loop.ema:
        load_weights(loop, tensors.get(AVERAGED, {}))
        loop.ema.copy_from_model()
        loop.ema.steps = facts["ema_steps"]
    load_weights(loop, tensors.get(MODEL, {}))
    loop.schedule.load_state_dict(facts["schedule"])
    if loop.accelerator.scaler is not None:
        loop.accelerator.scaler.load_state_dict(facts["scaler"])
    loop.done = facts["step"]
    loop.loader.load_state_dict(facts["loader"].get("shards", {}))
    # Processes of one tensor-parallel group draw alike.
    rank, _ = data_parallel(loop.accelerator)
    if rank < facts["processes"]:
        own = {key.partition(":")[2]: value for key, value in random_states.items() if key.startswith(f"{rank}:")}
        set_rng_state(own, facts["random"][rank])
    else:
        seed(loop.recipe.seed, loop.done, rank)


def follow_schedule(loop: Loop) -> str:
    """Set the learning rate of the next step by a schedule that is longer now, and return what that changes."""
    schedule: Any = loop.schedule
    before = schedule.get_last_lr()[0]
    rates = [base * rule(loop.done) for base, rule in zip(schedule.base_lrs, schedule.lr_lambdas, strict=True)]
    for group, rate in zip(unwrapped(loop.optimizer).param_groups, rates, strict=True):
        group["lr"] = rate
    schedule._last_lr = rates
    name, after = loop.recipe.schedule.name, rates[0]
    if before == after:
        return f"the learning rate stays at {after:.3g}"
    return f"the learning rate goes from {before:.3g} to {after:.3g}, where the longer {name} schedule has it"


def load_kept_weights(loop: Loop, tensors: Tensors) -> None:
    """Load the weights that a checkpoint is evaluated by, the averaged ones if it has them."""
    load_weights(loop, tensors.get(AVERAGED, tensors.get(MODEL, {})))


def weights(loop: Loop) -> dict[str, Any]:
    """Gather the model's weights, tied ones once."""
    state, tied = full_weights(loop.accelerator, loop.model), tied_weights(loop)
    return {name: weight for name, weight in state.items() if name not in tied}


def optimizer_state(loop: Loop) -> dict[str, Any]:
    """Gather the optimizer's moments and groups, by the names of parameters."""
    if deepspeed.is_deepspeed(loop.accelerator):
        return deepspeed.optimizer_state(loop.model)
    return dict(get_optimizer_state_dict(loop.model, unwrapped(loop.optimizer), options=FULL))


def load_weights(loop: Loop, weights: dict[str, Tensor]) -> None:
    """Load the main process's weights into the model."""
    tied = {name: weights[source] for name, source in tied_weights(loop).items() if source in weights}
    full: Any = {**weights, **tied}
    if deepspeed.is_deepspeed(loop.accelerator):
        deepspeed.load_weights(loop.model, full)
    else:
        set_model_state_dict(loop.model, full, options=broadcast_options(loop))


def load_optimizer(loop: Loop, tensors: Tensors, facts: dict[str, Any]) -> None:
    """Load the main process's moments into the optimizer."""
    state: dict[str, Any] = {"state": {}, "param_groups": facts["param_groups"]}
    for key, value in tensors.get(OPTIMIZER, {}).items():
        name, _, moment = key.rpartition(":")
        state["state"].setdefault(name, {})[moment] = value
    if deepspeed.is_deepspeed(loop.accelerator):
        deepspeed.load_optimizer_state(loop.model, state)
    else:
        given = state if tensors else {}
        set_optimizer_state_dict(loop.model, unwrapped(loop.optimizer), given, options=broadcast_options(loop))


def broadcast_options(loop: Loop) -> StateDictOptions:
    """Return how the state that the main process has read reaches all processes."""
    several = loop.accelerator.num_processes > 1
    return StateDictOptions(full_state_dict=True, cpu_offload=not several, broadcast_from_rank0=several)


def unwrapped(optimizer: Any) -> torch.optim.Optimizer:
    """Return the optimizer that Accelerate has wrapped."""
    return getattr(optimizer, "optimizer", optimizer)


def tied_weights(loop: Loop) -> dict[str, str]:
    """Return the names of tied weights, and the names under which they are saved."""
    model: nn.Module = loop.accelerator.unwrap_model(loop.model)
    return getattr(model, "all_tied_weights_keys", {})


def rng_state() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the state of this process's random generators: torch's as tensors, Python's and NumPy's as JSON."""
    generators = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        generators["cuda"] = torch.cuda.get_rng_state()
    legacy: Any = np.random.get_state()
    name, keys, *rest = legacy
    return generators, {"python": random.getstate(), "numpy": [name, keys.tolist(), *rest]}


def set_rng_state(generators: dict[str, Tensor], numbers: dict[str, Any]) -> None:
    """Restore a state of the random generators."""
    torch.set_rng_state(generators["cpu"])
    if torch.cuda.is_available() and "cuda" in generators:
        torch.cuda.set_rng_state(generators["cuda"])
    version, keys, gauss = numbers["python"]
    random.setstate((version, tuple(keys), gauss))
    np.random.set_state(tuple(numbers["numpy"]))


def seed(*numbers: int) -> None:
    """Seed all random generators by several numbers."""
    set_seed(int(np.random.SeedSequence(numbers).generate_state(1)[0]))
