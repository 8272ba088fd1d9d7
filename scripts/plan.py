"""Say what a training will take: parameters, FLOPs, memory and traffic of each device, and time.

A step is run on tensors without numbers, so no weights are allocated and no device is needed. Memory is what the step's
tensors take at the worst moment, without what kernels need inside themselves, the context of a device and fragments.
"""

import math
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from qkv.modeling.conversion_files import write_json
from qkv.scripts.training.plan import Plan, plan
from qkv.scripts.training.plan_device import DEVICES, UTILIZATION
from qkv.scripts.training.plan_step import DTYPES, Setup
from qkv.scripts.training.plan_subject import Subject, find
from qkv.scripts.training.report import show

EXAMPLE = "qkv plan llama_3_2_1b --world-size 64 --strategy fsdp2 --batch 4 --length 2048"
STRATEGIES = ("ddp", "fsdp2", "tp", "zero2", "zero3")
# Devices of a node share its fast links: tensor parallelism stays within it.
NODE = 8


def add_arguments(parser: ArgumentParser) -> None:
    """What is trained, and on what."""
    parser.add_argument("subject", metavar="RECIPE|PRESET|FOLDER", help="whose model is planned")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="a field of the recipe or of the config")
    parser.add_argument("--world-size", type=int, default=1, metavar="N", help="devices (1)")
    parser.add_argument("--strategy", choices=STRATEGIES, default="ddp", help="how they share the work (ddp)")
    parser.add_argument("--split", type=int, metavar="N", help=f"devices that share a layer under tp (up to {NODE})")
    parser.add_argument("--batch", type=int, metavar="N", help="examples at once on a device (the recipe's part, or 1)")
    parser.add_argument("--length", type=int, metavar="N", help="tokens of an example (up to 1024)")
    parser.add_argument("--precision", choices=tuple(DTYPES), help="the recipe's, or bf16")
    parser.add_argument("--device", choices=(*DEVICES, "cpu"), default="h100", help="whose speed is assumed (h100)")
    parser.add_argument("--utilization", type=float, default=UTILIZATION, help=f"of its peak ({UTILIZATION})")
    parser.add_argument("--steps", type=int, metavar="N", help="optimizer steps (the recipe's)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")


def run(arguments: Namespace) -> None:
    """Plan, and print a table."""
    refuse_numbers(arguments)
    subject = find(arguments.subject, arguments.overrides, arguments.length)
    steps = arguments.steps or (subject.recipe.max_steps if subject.recipe else None)
    found = plan(subject, setup(arguments, subject), arguments.device, arguments.utilization, steps)
    show(title(found), rows(found))
    if arguments.json:
        write_json(arguments.json, found.as_json() | {"command": arguments.words})


def refuse_numbers(arguments: Namespace) -> None:
    """Raise ValueError for numbers that describe no training."""
    for name in ("world_size", "split", "batch", "length", "steps"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')}={value} must be at least 1")
    if not 0 < arguments.utilization <= 1:
        raise ValueError(f"--utilization={arguments.utilization} is not a share of the peak; give one such as 0.4")


def setup(arguments: Namespace, subject: Subject) -> Setup:
    """How the step is taken; ValueError where devices cannot share the model or the batch."""
    world, recipe = arguments.world_size, subject.recipe
    split = splits(arguments, subject) if arguments.strategy == "tp" else 1
    if arguments.split and arguments.strategy != "tp":
        raise ValueError(f"--split={arguments.split} needs --strategy tp")
    accumulate = recipe.accumulate if recipe else 1
    batch = arguments.batch or 1
    if recipe and not arguments.batch:
        shared = world // split * accumulate
        if recipe.batch_size % shared:
            raise ValueError(
                f"batch_size={recipe.batch_size} cannot be shared by {shared} parts; give another, or --batch"
            )
        batch = recipe.batch_size // shared
    return Setup(
        world_size=world,
        strategy=arguments.strategy,
        batch=batch,
        accumulate=accumulate,
        precision=arguments.precision or (recipe.precision if recipe else "bf16"),
        fused=arguments.device != "cpu",
        split=split,
    )


def splits(arguments: Namespace, subject: Subject) -> int:
    """Devices that share each layer."""
    world = arguments.world_size
    parts = [getattr(subject.config, name, subject.config) for name in ("encoder", "decoder")]
    heads = math.gcd(*(getattr(part, "num_key_value_heads", None) or part.num_attention_heads for part in parts))
    split: int = arguments.split or math.gcd(world, heads, NODE)
    if world % split:
        raise ValueError(f"--world-size={world} is no multiple of --split={split}")
    if heads % split:
        raise ValueError(f"--split={split} does not divide the {heads} heads of keys and values")
    return split


def title(found: Plan) -> str:
    """What was planned."""
    how = found.setup
    shared = f" (layers over {how.split}, data over {how.data_parallel})" if how.strategy == "tp" else ""
    each = "images" if found.subject.is_image else f"x {found.subject.length} tokens"
    batch = f"{how.batch} {each}"
    return f"{found.subject.name}: {how.world_size} x {how.strategy}{shared}, {batch} each, {how.precision}"


def rows(found: Plan) -> dict[str, str]:
    """The table."""
    unit = "image" if found.subject.is_image else "token"
    table = {f"parameters, {name}": f"{number:,}" for name, number in found.parameters.items()}
    table |= {f"FLOPs per {unit}, {name}": scaled(number, "") for name, number in found.flops.items()}
    for name, step in (("memory", found.plain), ("memory with checkpointing", found.checkpointed)):
        parts = ", ".join(f"{kind} {scaled(size, 'B')}" for kind, size in sorted(step.memory.items()))
        table[f"{name}, per device"] = f"{scaled(sum(step.memory.values()), 'B')} ({parts})"
    for sent in found.plain.traffic:
        what = f"{sent.kind} over {sent.devices}"
        table[f"{what}, per part" if found.setup.accumulate > 1 else f"{what}, per step"] = (
            f"{scaled(sent.bytes, 'B')} in {sent.calls} calls, of which each device sends {scaled(sent.sent, 'B')}"
        )
    return table | times(found)


def times(found: Plan) -> dict[str, str]:
    """The estimate, with what it assumes."""
    estimate = found.estimate
    if estimate is None:
        return {}
    assumed = f"assuming {estimate.utilization:.0%} of the peak of {estimate.device}, and sending beside computing"
    table = {"seconds per step, estimate": f"{max(estimate.computing, estimate.sending):.3g} ({assumed})"}
    if estimate.hours is not None:
        table[f"hours for {estimate.steps:,} steps, estimate"] = f"{estimate.hours:.3g}"
    return table


def scaled(number: float, unit: str) -> str:
    """A number with its thousands as a letter."""
    power = min(int(math.log10(number) // 3), 6) if number >= 1 else 0
    return f"{number / 1000**power:.4g} {'kMGTPE'[power - 1] if power else ''}{unit}"


if __name__ == "__main__":
    from qkv.scripts.cli import main

    sys.exit(main(["plan", *sys.argv[1:]]))
