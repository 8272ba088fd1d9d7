"""Predict the cost of a training, for one setup of devices or several."""

import math
from argparse import Namespace
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

from qkv.modeling.conversion.files import write_json
from qkv.scripts.common.tables import print_columns, print_table, scaled
from qkv.scripts.common.words import did_you_mean
from qkv.scripts.planning.arguments import DEVICES, NODE, Strategy
from qkv.scripts.planning.inputs import sized
from qkv.scripts.planning.planned_model import PlannedModel, find
from qkv.scripts.planning.simulate import Setup, Step, count_flops, count_parameters, simulate
from qkv.scripts.training.accelerator import check_shardable, stack_configs
from qkv.scripts.training.loop import check_in_batch_negatives

LEGEND = "memory and bytes sent are of one device; checkpd.: with gradient checkpointing; *: more than it has"
STRATEGIES = get_args(Strategy)
# Share of a device's peak that large trainings are reported to reach: 21 % to 46 %.
# Source: Chowdhery et al. 2022, table 3, https://arxiv.org/abs/2204.02311
UTILIZATION = 0.4


@dataclass
class Plan:
    """A setup, its step `plain` and with gradient checkpointing (`checkpointed`), and the estimated time of it.

    `seconds` are those of a step on devices that reach UTILIZATION of their peak.
    """

    setup: Setup
    plain: Step
    checkpointed: Step
    seconds: float | None


def run(arguments: Namespace) -> None:
    """Print the counts of a model and a line for each setup; of a single one also memory by kind, and collectives."""
    model, device = find(arguments.subject, arguments.overrides, arguments.length), DEVICES.get(arguments.device)
    steps, wanted = arguments.steps or steps_of(model), setups(arguments, model)
    counts: dict[str, Any] = {"parameters": count_parameters(model), "FLOPs": count_flops(model)}
    plans = []
    for setup in wanted:
        plain, checkpointed = (simulate(model, replace(setup, checkpointing=on)) for on in (False, True))
        work = counts["FLOPs"]["model"] * model.units * setup.batch * setup.accumulate / setup.split
        plans.append(Plan(setup, plain, checkpointed, seconds(device, setup, plain, work) if device else None))
    print_table(model.name, count_rows(model, counts) | (step_rows(plans[0]) if len(plans) == 1 else {}))
    assumed = f", assuming {UTILIZATION:.0%} of the peak of {device['name']}" if device else ""
    parts = f" in {wanted[0].accumulate} micro-batches" if wanted[0].accumulate > 1 else ""
    each = f"{wanted[0].batch} x {sized(model.sizes)} each{parts}, {wanted[0].precision}{assumed}"
    print_columns(each, [columns(plan, model, device, steps) for plan in plans], LEGEND)
    if arguments.json:
        about = {"model": model.name, "class": model.model_class.__name__, "example": model.sizes}
        write_json(arguments.json, {"command": arguments.words, **about, **counts, "plans": [*map(asdict, plans)]})


def steps_of(model: PlannedModel) -> int | None:
    """Return the steps of the recipe, if there is one; ValueError where they follow from the data."""
    if model.recipe is None:
        return None
    if epochs := model.recipe.optimization.epochs:
        raise ValueError(f"epochs={epochs:g} needs the data, which a plan does not read; give max_steps or --steps")
    return model.recipe.optimization.max_steps


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
    if model.unit == "pair":
        check_in_batch_negatives("pairs", accumulate)
    setup = Setup(
        world_size=world,
        strategy=strategy,
        batch=arguments.batch or 1,
        accumulate=accumulate,
        precision=arguments.precision or (recipe.compute.precision if recipe else "bf16"),
        fused=arguments.device != "cpu",
        split=tensor_parallel_size(world, model) if strategy == "tp" else 1,
    )
    if recipe is None or arguments.batch:
        return setup
    batch_size, micro_batches = recipe.optimization.batch_size, setup.data_parallel * setup.accumulate
    if batch_size % micro_batches:
        raise ValueError(
            f"batch_size={batch_size} cannot be split into {micro_batches} micro-batches; change it, or give --batch"
        )
    return replace(setup, batch=batch_size // micro_batches)


def tensor_parallel_size(world: int, model: PlannedModel) -> int:
    """Return the number of devices that share each layer: as many as a node has and the heads allow."""
    return math.gcd(world, NODE, *(part.num_key_value_heads for part in stack_configs(model.config)))


def seconds(device: dict[str, Any], setup: Setup, step: Step, work: float) -> float:
    """Estimate the time of a step of so many FLOPs on each device; only blocking collectives wait for computation."""
    blocking = sum(each.seconds(device) for each in step.communication if each.blocking)
    overlapped = sum(each.seconds(device) for each in step.communication if not each.blocking)
    return max(work / (UTILIZATION * device[setup.precision]), overlapped) + blocking


def count_rows(model: PlannedModel, counts: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return the rows of parameters and FLOPs."""
    rows = {} if model.unit == "token" else {model.unit: sized(model.sizes)}
    rows |= {f"parameters, {name}": f"{number:,}" for name, number in counts["parameters"].items()}
    return rows | {f"FLOPs per {model.unit}, {name}": scaled(number, "") for name, number in counts["FLOPs"].items()}


def step_rows(plan: Plan) -> dict[str, str]:
    """Return the rows of a step: its memory by kind, and its collectives."""
    rows = {}
    for name, step in (("memory", plan.plain), ("memory with checkpointing", plan.checkpointed)):
        rows[name] = ", ".join(f"{kind} {scaled(size, 'B')}" for kind, size in sorted(step.memory.items()))
    for each in plan.plain.communication:
        sent = f"of which each device sends {scaled(each.sent, 'B')}"
        rows[f"{each.kind} over {each.devices}"] = f"{scaled(each.bytes, 'B')} in {each.calls} calls, {sent}"
    return rows


def columns(plan: Plan, model: PlannedModel, device: dict[str, Any] | None, steps: int | None) -> dict[str, str]:
    """Return a plan as a line, with a star at more memory than the device has."""
    setup = plan.setup
    sizes = [sum(step.memory.values()) for step in (plan.plain, plan.checkpointed)]
    limit = device["memory"] if device else math.inf
    plain, checkpointed = (scaled(size, "B") + ("*" if size > limit else "") for size in sizes)
    line = {
        "devices": str(setup.world_size),
        "strategy": f"tp {setup.split} x {setup.data_parallel}" if setup.strategy == "tp" else setup.strategy,
        "memory": plain,
        "checkpd.": checkpointed,
        "sent": scaled(sum(each.sent for each in plan.plain.communication), "B"),
    }
    if plan.seconds is None:
        return line
    units = setup.batch * setup.data_parallel * setup.accumulate * model.units
    line |= {"s/step": f"{plan.seconds:.3g}", f"{model.unit}s/s": scaled(units / plan.seconds, "")}
    return line if steps is None else line | {"hours": f"{plan.seconds * steps / 3600:.3g}"}
