"""Predict what a training takes, for one setup of devices or several."""

import math
from argparse import Namespace
from dataclasses import replace
from typing import Any, get_args

from qkv.modeling.conversion.files import write_json
from qkv.scripts.common.tables import print_columns, print_table, scaled
from qkv.scripts.common.words import did_you_mean
from qkv.scripts.planning.devices import DEVICES, NODE, Strategy
from qkv.scripts.planning.inputs import sized
from qkv.scripts.planning.planned_model import PlannedModel, find
from qkv.scripts.planning.predict import Prediction, predict
from qkv.scripts.planning.simulate import Setup, Step
from qkv.scripts.training.accelerator import check_shardable, stack_configs
from qkv.scripts.training.loop import check_in_batch_negatives

LEGEND = "memory and bytes sent are of one device; checkpd.: with gradient checkpointing; *: more than it has"
STRATEGIES = get_args(Strategy)


def run(arguments: Namespace) -> None:
    """Print all figures of one setup, or a line for each of several."""
    model = find(arguments.subject, arguments.overrides, arguments.length)
    steps = arguments.steps or steps_of(model)
    predictions = predict(model, setups(arguments, model), arguments.device, arguments.utilization, steps)
    first = predictions[0]
    if len(predictions) == 1:
        print_table(title(first), rows(first))
    else:
        print_table(model.name, counts(first))
        common = f"{batch(first)} each, {first.setup.precision}, {assumption(first)}"
        print_columns(common, [columns(prediction) for prediction in predictions], LEGEND)
    if arguments.json:
        plans = [prediction.as_json() for prediction in predictions]
        write_json(arguments.json, {"command": arguments.words, "plans": plans})


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
    if arguments.split and "tp" not in strategies:
        raise ValueError(f"--split={arguments.split} needs --strategy tp")
    return [make_setup(arguments, model, int(world), strategy) for strategy in strategies for world in worlds]


def make_setup(arguments: Namespace, model: PlannedModel, world: int, strategy: Strategy) -> Setup:
    """Return how a step is taken; ValueError where devices cannot share the model or the batch."""
    recipe = model.recipe
    accumulate = recipe.optimization.accumulate if recipe else 1
    if strategy in ("fsdp2", "tp"):
        check_shardable(model.without_weights(), "take --strategy ddp")
    if model.example.in_batch_negatives:
        check_in_batch_negatives(f"{model.example.unit}s", accumulate)
    setup = Setup(
        world_size=world,
        strategy=strategy,
        batch=arguments.batch or 1,
        accumulate=accumulate,
        precision=arguments.precision or (recipe.compute.precision if recipe else "bf16"),
        fused=arguments.device != "cpu",
        split=tensor_parallel_size(arguments.split, world, model) if strategy == "tp" else 1,
    )
    if recipe is None or arguments.batch:
        return setup
    micro_batches = setup.data_parallel * setup.accumulate
    batch_size = recipe.optimization.batch_size
    if batch_size % micro_batches:
        raise ValueError(
            f"batch_size={batch_size} cannot be split into {micro_batches} micro-batches; change it, or give --batch"
        )
    return replace(setup, batch=batch_size // micro_batches)


def tensor_parallel_size(asked: int | None, world: int, model: PlannedModel) -> int:
    """Return how many devices share each layer: as many as asked, or as a node has and the heads allow."""
    heads = math.gcd(*(part.num_key_value_heads for part in stack_configs(model.config)))
    size = asked or math.gcd(world, heads, NODE)
    if world % size:
        raise ValueError(f"--world-size={world} is no multiple of --split={size}")
    if heads % size:
        raise ValueError(f"--split={size} does not divide the {heads} key-value heads")
    return size


def title(prediction: Prediction) -> str:
    """Return the heading of a table."""
    setup = prediction.setup
    split = f" (layers over {setup.split}, data over {setup.data_parallel})" if setup.strategy == "tp" else ""
    parts = f" in {setup.accumulate} micro-batches" if setup.accumulate > 1 else ""
    devices = f"{setup.world_size} x {setup.strategy}{split}"
    return f"{prediction.model.name}: {devices}, {batch(prediction)} each{parts}, {setup.precision}"


def batch(prediction: Prediction) -> str:
    """Describe the batch of a device."""
    count, unit = prediction.setup.batch, prediction.model.example.unit
    return (
        f"{count} x {sized(prediction.model.sizes)}" if unit == "token" else f"{count} {unit}{'s' if count > 1 else ''}"
    )


def rows(prediction: Prediction) -> dict[str, str]:
    """Return all rows of one prediction."""
    table = counts(prediction)
    for name, step in (("memory", prediction.plain), ("memory with checkpointing", prediction.checkpointed)):
        parts = ", ".join(f"{kind} {scaled(size, 'B')}" for kind, size in sorted(step.memory.items()))
        table[f"{name}, per device"] = f"{memory(prediction, step)} ({parts})"
    for sent in prediction.plain.communication:
        table[f"{sent.kind} over {sent.devices}, per step"] = (
            f"{scaled(sent.bytes, 'B')} in {sent.calls} calls, of which each device sends {scaled(sent.sent, 'B')}"
        )
    estimate = prediction.estimate
    if estimate is not None:
        table["seconds per step, estimate"] = f"{estimate.step:.3g} ({assumption(prediction)})"
        if estimate.hours is not None:
            table[f"hours for {estimate.steps:,} steps, estimate"] = f"{estimate.hours:.3g}"
    return table


def counts(prediction: Prediction) -> dict[str, str]:
    """Return the rows that are the same for all setups."""
    unit = prediction.model.example.unit
    table = {} if unit == "token" else {unit: sized(prediction.model.sizes)}
    table |= {f"parameters, {name}": f"{number:,}" for name, number in prediction.parameters.items()}
    return table | {f"FLOPs per {unit}, {name}": scaled(number, "") for name, number in prediction.flops.items()}


def memory(prediction: Prediction, step: Step) -> str:
    """Return the memory of a step, with a star where that is more than the device has."""
    size = sum(step.memory.values())
    limit = DEVICES[prediction.device].memory if prediction.device in DEVICES else math.inf
    return scaled(size, "B") + ("*" if size > limit else "")


def assumption(prediction: Prediction) -> str:
    """Return what an estimate assumes."""
    estimate = prediction.estimate
    return f"assuming {estimate.utilization:.0%} of the peak of {estimate.device}" if estimate else "no estimate"


def columns(prediction: Prediction) -> dict[str, str]:
    """Return one of several predictions as a line."""
    setup, estimate = prediction.setup, prediction.estimate
    table = {
        "devices": str(setup.world_size),
        "strategy": f"tp {setup.split} x {setup.data_parallel}" if setup.strategy == "tp" else setup.strategy,
        "memory": memory(prediction, prediction.plain),
        "checkpd.": memory(prediction, prediction.checkpointed),
        "sent": scaled(sum(sent.sent for sent in prediction.plain.communication), "B"),
    }
    if estimate is None:
        return table
    unit, count = prediction.model.example.unit, setup.batch * setup.data_parallel * setup.accumulate
    per_second = count * prediction.model.units / estimate.step
    table |= {"s/step": f"{estimate.step:.3g}", f"{unit}s/s": scaled(per_second, "")}
    return table if estimate.hours is None else table | {"hours": f"{estimate.hours:.3g}"}
