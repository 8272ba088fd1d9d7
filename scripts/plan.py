"""Predict the parameters, memory and traffic of a training, for one setup of devices or several."""

import math
from argparse import Namespace
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

from qkv.scripts.common.files import write_json
from qkv.scripts.common.tables import print_columns, print_table, scaled
from qkv.scripts.common.words import did_you_mean
from qkv.scripts.planning.inputs import sized
from qkv.scripts.planning.planned_model import PlannedModel, find
from qkv.scripts.planning.simulate import Setup, Step, Strategy, count_parameters, simulate
from qkv.scripts.training.accelerator import check_shardable, stack_configs, with_device_defaults
from qkv.scripts.training.loop import check_in_batch_negatives

LEGEND = "memory and bytes sent are of one device; checkpd.: with gradient checkpointing"
STRATEGIES = get_args(Strategy)
NODE = 8  # devices with fast links to each other, which share a layer


@dataclass
class Plan:
    """A setup, and its step `plain` and with gradient checkpointing (`checkpointed`)."""

    setup: Setup
    plain: Step
    checkpointed: Step


def run(arguments: Namespace) -> None:
    """Print the parameters of a model and a line for each setup; of a single one also memory by kind and traffic."""
    model = find(arguments.subject, arguments.overrides, arguments.length)
    wanted, parameters = setups(arguments, model), count_parameters(model)
    plans = [Plan(each, *(simulate(model, replace(each, checkpointing=on)) for on in (False, True))) for each in wanted]
    rows = {"example": sized(model.sizes)} | {f"parameters, {name}": f"{count:,}" for name, count in parameters.items()}
    print_table(model.name, rows | (step_rows(plans[0]) if len(plans) == 1 else {}))
    parts = f" in {wanted[0].accumulate} micro-batches" if wanted[0].accumulate > 1 else ""
    each = f"{wanted[0].batch} x {sized(model.sizes)} each{parts}, {wanted[0].precision}"
    print_columns(each, [columns(plan) for plan in plans], LEGEND)
    if arguments.json:
        about = {"model": model.name, "class": model.model_class.__name__, "example": model.sizes}
        about |= {"command": arguments.words, "parameters": parameters, "plans": [*map(asdict, plans)]}
        write_json(arguments.json, about)


def setups(arguments: Namespace, model: PlannedModel) -> list[Setup]:
    """Return every strategy on every number of devices; ValueError where they cannot share the model or the batch."""
    strategies: list[Any] = arguments.strategy.split(",")
    worlds = arguments.world_size.split(",")
    for strategy in strategies:
        if strategy not in STRATEGIES:
            raise ValueError(f"--strategy={strategy} is not known; {did_you_mean(strategy, STRATEGIES, 'strategies')}")
    for world in worlds:
        if not world.isdecimal() or int(world) < 1:
            raise ValueError(f"--world-size={world} is no number of devices; give one such as 8, or several: 8,64,512")
    return [make_setup(arguments, model, int(world), strategy) for strategy in strategies for world in worlds]


def make_setup(arguments: Namespace, model: PlannedModel, world: int, strategy: Strategy) -> Setup:
    """Return the setup of a step; ValueError where devices cannot share the model or the batch."""
    recipe = model.recipe
    accumulate = recipe.optimization.accumulate if recipe else 1
    if strategy in ("fsdp2", "tp"):
        check_shardable(model.without_weights(), "take --strategy ddp")
    if model.head.inputs == "pair":
        check_in_batch_negatives("pairs", accumulate)
    # Tensor parallelism shares a layer among as many devices as a node has and the heads allow.
    heads = [part.num_key_value_heads for part in stack_configs(model.config)] if strategy == "tp" else [1]
    setup = Setup(
        world_size=world,
        strategy=strategy,
        batch=arguments.batch or 1,
        accumulate=accumulate,
        precision=arguments.precision
        or (with_device_defaults(recipe).compute.precision or "fp32" if recipe else "bf16"),
        split=math.gcd(world, NODE, *heads),
    )
    if recipe is None or arguments.batch:
        return setup
    batch_size, micro_batches = recipe.optimization.batch_size, setup.data_parallel * setup.accumulate
    if batch_size % micro_batches:
        raise ValueError(
            f"batch_size={batch_size} cannot be split into {micro_batches} micro-batches; change it, or give --batch"
        )
    return replace(setup, batch=batch_size // micro_batches)


def step_rows(plan: Plan) -> dict[str, str]:
    """Return the rows of a step: its memory by kind, and its collectives."""
    rows = {}
    for name, step in (("memory", plan.plain), ("memory with checkpointing", plan.checkpointed)):
        rows[name] = ", ".join(f"{kind} {scaled(size, 'B')}" for kind, size in sorted(step.memory.items()))
    for each in plan.plain.communication:
        sent = f"of which each device sends {scaled(each.sent, 'B')}"
        rows[f"{each.kind} over {each.devices}"] = f"{scaled(each.bytes, 'B')} in {each.calls} calls, {sent}"
    return rows


def columns(plan: Plan) -> dict[str, str]:
    """Return a plan as a line."""
    setup = plan.setup
    plain, checkpointed = (sum(step.memory.values()) for step in (plan.plain, plan.checkpointed))
    return {
        "devices": str(setup.world_size),
        "strategy": f"tp {setup.split} x {setup.data_parallel}" if setup.strategy == "tp" else setup.strategy,
        "memory": scaled(plain, "B"),
        "checkpd.": scaled(checkpointed, "B"),
        "sent": scaled(sum(each.sent for each in plan.plain.communication), "B"),
    }
