"""Train a recipe.

In several processes, on GPUs or on one CPU: `torchrun --nproc-per-node 2 scripts/train.py digits`, or
`accelerate launch --config_file scripts/accelerate/ddp.yaml --num_processes 2 scripts/train.py digits`.
Accelerate's own `--cpu` starts a single process, however many are asked for.
"""

import sys
from argparse import ArgumentParser, Namespace

from qkv.scripts.common.tables import file_rows, print_table, run_rows
from qkv.scripts.publishing.card.card import write_card
from qkv.scripts.recipes.loading import load, names
from qkv.scripts.training.run import train

EXAMPLE = "qkv train digits seed=1 max_steps=500 model.position=rope out=runs/rope"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the recipe and its overrides."""
    parser.add_argument("recipe", help=f"one of {', '.join(names())}, or a YAML file")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="a field of the recipe and its value")


def run(arguments: Namespace) -> None:
    """Train, write the card, and print the results and files."""
    finished = train(load(arguments.recipe, arguments.overrides), arguments.words)
    if finished.is_main:
        write_card(finished.folder / "record.json", finished.folder / "card.md")
        print_table(finished.record["recipe"]["name"], {**run_rows(finished.record), **file_rows(finished.folder)})


if __name__ == "__main__":
    from qkv.scripts.cli import main

    sys.exit(main(["train", *sys.argv[1:]]))
