"""Say what a training will take: parameters, FLOPs, memory and traffic of each device, and time.

A step is run on tensors without numbers, so no weights are allocated and no device is needed. Memory is what the step's
tensors take at the worst moment, without what kernels need inside themselves, the context of a device and fragments.
"""

import math
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from qkv.modeling.conversion.files import write_json
from qkv.scripts.common.tables import show, show_columns
from qkv.scripts.planning.collectives import NODE
from qkv.scripts.planning.devices import DEVICES, UTILIZATION
from qkv.scripts.planning.plan import Plan, plans
from qkv.scripts.planning.simulate import DTYPES, Setup, Step, Strategy
from qkv.scripts.planning.subject import Subject, find
from qkv.scripts.recipes.schema import meant
from qkv.scripts.training.accelerator import check_shardable, stack_configs
from qkv.scripts.training.loop import check_in_batch_negatives

EXAMPLE = "qkv plan llama_3_2_1b --world-size 8,64,512 --strategy ddp,fsdp2,tp --batch 4 --length 2048"
LEGEND = "memory and bytes sent are of one device; checkpd.: with gradient checkpointing; *: more than it has"
STRATEGIES = get_args(Strategy)


def add_arguments(parser: ArgumentParser) -> None:
    """What is trained, and on what."""
    parser.add_argument("subject", metavar="RECIPE|PRESET|FOLDER", help="whose model is planned")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="a field of the recipe or of the config")
    parser.add_argument("--world-size", default="1", metavar="N,…", help="devices (1), or several numbers of them")
    words = f"how they share the work (ddp): {', '.join(STRATEGIES)}, or several of these"
    parser.add_argument("--strategy", default="ddp", metavar="WORD,…", help=words)
    parser.add_argument("--split", type=int, metavar="N", help=f"devices that share a layer under tp (up to {NODE})")
    parser.add_argument("--batch", type=int, metavar="N", help="examples at once on a device (the recipe's part, or 1)")
    parser.add_argument("--length", type=int, metavar="N", help="tokens of a text (up to 1024)")
    parser.add_argument("--precision", choices=tuple(DTYPES), help="the recipe's, or bf16")
    parser.add_argument("--device", choices=(*DEVICES, "cpu"), default="h100", help="whose speed is assumed (h100)")
    parser.add_argument("--utilization", type=float, default=UTILIZATION, help=f"of its peak ({UTILIZATION})")
    parser.add_argument("--steps", type=int, metavar="N", help="optimizer steps (the recipe's)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")


def run(arguments: Namespace) -> None:
    """Plan, and print a table: of one setup all there is to know, of several a line each."""
    refuse_numbers(arguments)
    subject = find(arguments.subject, arguments.overrides, arguments.length)
    steps = arguments.steps or (subject.recipe.max_steps if subject.recipe else None)
    found = plans(subject, setups(arguments, subject), arguments.device, arguments.utilization, steps)
    if len(found) == 1:
        show(title(found[0]), rows(found[0]))
    else:
        show(subject.name, counts(found[0]))
        show_columns(compared(found[0]), [columns(one) for one in found], LEGEND)
    if arguments.json:
        write_json(arguments.json, {"command": arguments.words, "plans": [one.as_json() for one in found]})


def refuse_numbers(arguments: Namespace) -> None:
    """Raise ValueError for numbers that describe no training."""
    for name in ("split", "batch", "length", "steps"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name}={value} must be at least 1")
    if not 0 < arguments.utilization <= 1:
        raise ValueError(f"--utilization={arguments.utilization} is not a share of the peak; give one such as 0.4")


def setups(arguments: Namespace, subject: Subject) -> list[Setup]:
    """Every strategy on every number of devices; ValueError where devices cannot share the model or the batch."""
    strategies: list[Any] = arguments.strategy.split(",")
    worlds = arguments.world_size.split(",")
    for strategy in strategies:
        if strategy not in STRATEGIES:
            raise ValueError(f"--strategy={strategy} is not known; {meant(strategy, STRATEGIES, 'strategies')}")
    for world in worlds:
        if not world.isdecimal() or int(world) < 1:
            raise ValueError(f"--world-size={world} is no number of devices; give one such as 8, or several: 8,64,512")
    if arguments.split and "tp" not in strategies:
        raise ValueError(f"--split={arguments.split} needs --strategy tp")
    return [setup(arguments, subject, int(world), strategy) for strategy in strategies for world in worlds]


def setup(arguments: Namespace, subject: Subject, world: int, strategy: Strategy) -> Setup:
    """How the step is taken; ValueError where devices cannot share the model or the batch."""
    recipe = subject.recipe
    accumulate = recipe.accumulate if recipe else 1
    refuse_parts(subject, strategy, accumulate)
    found = Setup(
        world_size=world,
        strategy=strategy,
        batch=arguments.batch or 1,
        accumulate=accumulate,
        precision=arguments.precision or (recipe.precision if recipe else "bf16"),
        fused=arguments.device != "cpu",
        split=splits(arguments.split, world, subject) if strategy == "tp" else 1,
    )
    if recipe is None or arguments.batch:
        return found
    shared = found.data_parallel * found.accumulate
    if recipe.batch_size % shared:
        raise ValueError(f"batch_size={recipe.batch_size} cannot be shared by {shared} parts; give another, or --batch")
    return replace(found, batch=recipe.batch_size // shared)


def refuse_parts(subject: Subject, strategy: Strategy, accumulate: int) -> None:
    """Raise ValueError where devices cannot share the model, or its examples compete and are taken in parts."""
    if strategy in ("fsdp2", "tp"):
        check_shardable(subject.outline(), "take --strategy ddp, zero2 or zero3")
    if subject.reading.contested:
        check_in_batch_negatives(f"{subject.reading.unit}s", accumulate)


def splits(asked: int | None, world: int, subject: Subject) -> int:
    """Devices that share each layer: as many as asked, or as a node has and the heads allow."""
    heads = math.gcd(*(part.num_key_value_heads for part in stack_configs(subject.config)))
    split = asked or math.gcd(world, heads, NODE)
    if world % split:
        raise ValueError(f"--world-size={world} is no multiple of --split={split}")
    if heads % split:
        raise ValueError(f"--split={split} does not divide the {heads} heads of keys and values")
    return split


def title(found: Plan) -> str:
    """What was planned."""
    how = found.setup
    parts = f" in {how.accumulate} parts" if how.accumulate > 1 else ""
    return f"{found.subject.name}: {how.world_size} x {shared(how)}, {batch(found)} each{parts}, {how.precision}"


def shared(how: Setup) -> str:
    """The strategy, and what shares what."""
    return f"tp (layers over {how.split}, data over {how.data_parallel})" if how.strategy == "tp" else how.strategy


def batch(found: Plan) -> str:
    """What a device, or those that share its layers, have at once."""
    count, unit = found.setup.batch, found.subject.reading.unit
    return f"{count} x {example(found)}" if unit == "token" else f"{count} {unit}{'s' if count > 1 else ''}"


def example(found: Plan) -> str:
    """How large an example is."""
    sizes = dict(found.subject.sizes)
    pixels = [f"{sizes.pop('height')} x {sizes.pop('width')} pixels"] if "height" in sizes else []
    return ", ".join([*pixels, *(f"{size} {name}" for name, size in sizes.items())])


def rows(found: Plan) -> dict[str, str]:
    """All of a plan."""
    table = counts(found)
    for name, step in (("memory", found.plain), ("memory with checkpointing", found.checkpointed)):
        parts = ", ".join(f"{kind} {scaled(size, 'B')}" for kind, size in sorted(step.memory.items()))
        table[f"{name}, per device"] = f"{memory(found, step)} ({parts})"
    for sent in found.plain.traffic:
        table[f"{sent.kind} over {sent.devices}, per step"] = (
            f"{scaled(sent.bytes, 'B')} in {sent.calls} calls, of which each device sends {scaled(sent.sent, 'B')}"
        )
    return table | times(found)


def counts(found: Plan) -> dict[str, str]:
    """What is the same for all devices."""
    unit = found.subject.reading.unit
    table = {} if unit == "token" else {unit: example(found)}
    table |= {f"parameters, {name}": f"{number:,}" for name, number in found.parameters.items()}
    return table | {f"FLOPs per {unit}, {name}": scaled(number, "") for name, number in found.flops.items()}


def memory(found: Plan, step: Step) -> str:
    """What a step takes, with a star where that is more than the device has."""
    size = sum(step.memory.values())
    limit = DEVICES[found.device].memory if found.device in DEVICES else math.inf
    return scaled(size, "B") + ("*" if size > limit else "")


def times(found: Plan) -> dict[str, str]:
    """The estimate, with what it assumes."""
    estimate = found.estimate
    if estimate is None:
        return {}
    table = {"seconds per step, estimate": f"{estimate.step:.3g} ({assumed(found)})"}
    if estimate.hours is not None:
        table[f"hours for {estimate.steps:,} steps, estimate"] = f"{estimate.hours:.3g}"
    return table


def assumed(found: Plan) -> str:
    """What an estimate rests on."""
    estimate = found.estimate
    return f"assuming {estimate.utilization:.0%} of the peak of {estimate.device}" if estimate else "no estimate"


def compared(found: Plan) -> str:
    """What the lines of several setups have in common."""
    return f"{batch(found)} each, {found.setup.precision}, {assumed(found)}"


def columns(found: Plan) -> dict[str, str]:
    """One of several plans."""
    how, estimate = found.setup, found.estimate
    table = {
        "devices": str(how.world_size),
        "strategy": f"tp {how.split} x {how.data_parallel}" if how.strategy == "tp" else how.strategy,
        "memory": memory(found, found.plain),
        "checkpd.": memory(found, found.checkpointed),
        "sent": scaled(sum(sent.sent for sent in found.plain.traffic), "B"),
    }
    if estimate is None:
        return table
    done = how.batch * how.data_parallel * how.accumulate * found.subject.positions
    table |= {"s/step": f"{estimate.step:.3g}", f"{found.subject.reading.unit}s/s": scaled(done / estimate.step, "")}
    return table if estimate.hours is None else table | {"hours": f"{estimate.hours:.3g}"}


def scaled(number: float, unit: str) -> str:
    """A number with its thousands as a letter."""
    power = min(int(math.log10(number) // 3), 6) if number >= 1 else 0
    return f"{number / 1000**power:.3g} {'kMGTPE'[power - 1] if power else ''}{unit}"


if __name__ == "__main__":
    from qkv.scripts.cli import main

    sys.exit(main(["plan", *sys.argv[1:]]))
