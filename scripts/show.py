"""Show the architecture of a model from its config: a tree with shapes and costs, memory, and a figure."""

import json
from argparse import Namespace

from rich.console import Console

from qkv.scripts.architecture.costs import Node, count_costs
from qkv.scripts.architecture.figure import check_format, draw
from qkv.scripts.architecture.source import HeadlessModel, find_model
from qkv.scripts.architecture.tree import table_of
from qkv.scripts.common.files import write_atomically
from qkv.scripts.common.phases import phase
from qkv.scripts.common.tables import print_table, scaled
from qkv.scripts.planning.inputs import part_configs, sized
from qkv.scripts.planning.planned_model import PlannedModel
from qkv.scripts.planning.predict import count_parameters
from qkv.scripts.planning.simulate import Setup, simulate

# Bytes of a weight by precision.
BYTES = {"fp32": 4, "bf16": 2}
CACHED = "a cached token"


def run(arguments: Namespace) -> None:
    """Print the tree and the sums, and write the figure and the JSON where they are asked for."""
    for name in ("length", "depth"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name}={value} must be at least 1")
    if arguments.out:
        check_format(arguments.out)
    model = find_model(arguments.source, arguments.overrides, arguments.length, arguments.revision)
    with phase("counting the costs of each module"):
        root = count_costs(model)
        parameters, memory = count_parameters(model), memory_of(model, root)
    title = f"{model.name}: {model.model_class.__name__}"
    Console(markup=False).print(table_of(title, root, arguments.depth))
    print_table("", rows(model, root, parameters, memory))
    if arguments.out:
        draw(model, parameters["total"], arguments.out)
        print(f"the figure: {arguments.out}")
    if arguments.json:
        content = {
            "command": arguments.words,
            "class": model.model_class.__name__,
            "example": dict(model.sizes),
            "parameters": parameters,
            "flops": root.flops,
            "memory": memory,
            "tree": root.as_json(),
        }
        write_atomically(arguments.json, json.dumps(content, indent=2) + "\n")


def memory_of(model: PlannedModel, root: Node) -> dict[str, dict[str, int]]:
    """Return the bytes of weights and of a cached token by precision, and those of a training step of one example.

    The cache is that of softmax attention in the decoder, which keeps a key and a value in each layer.
    """
    memory = {"weights": {name: size * root.parameters for name, size in BYTES.items()}}
    numbers = sum(
        2 * part.num_hidden_layers * part.num_key_value_heads * part.head_dim
        for part in part_configs(model.config)
        if getattr(part, "causal", False) and part.kernel == "softmax"
    )
    if numbers and model.model_class.can_generate():
        memory[CACHED] = {name: size * numbers for name, size in BYTES.items()}
    if isinstance(model, HeadlessModel):  # has no loss
        return memory
    setup = Setup(world_size=1, strategy="ddp", batch=1, precision="fp32", fused=False)
    return memory | {"training": simulate(model, setup).memory}


def rows(
    model: PlannedModel, root: Node, parameters: dict[str, int], memory: dict[str, dict[str, int]]
) -> dict[str, str]:
    """Return the sums."""
    unit = model.example.unit
    table = {
        "one example": sized(model.sizes),
        "parameters": f"{parameters['total']:,}, of which embeddings {parameters['embedding']:,}",
        "FLOPs, forward": f"{scaled(root.flops, '')} of an example"
        + (f", {scaled(root.flops / model.units, '')} of a token" if unit == "token" else ""),
    }
    for what in ("weights", CACHED):
        if what in memory:
            table[f"memory of {what}"] = ", ".join(
                f"{scaled(size, 'B')} in {name}" for name, size in memory[what].items()
            )
    if step := memory.get("training"):
        kinds = ", ".join(f"{name} {scaled(size, 'B')}" for name, size in sorted(step.items()))
        table["memory of training"] = f"{scaled(sum(step.values()), 'B')}, AdamW in fp32, one example: {kinds}"
    return table
