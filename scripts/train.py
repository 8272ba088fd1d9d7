"""Train a recipe, write its card and print what came out."""

import sys
from argparse import Namespace

from qkv.scripts.common.tables import file_rows, print_table, run_rows
from qkv.scripts.publishing.card.card import write_card
from qkv.scripts.recipes.loading import load
from qkv.scripts.training.run import train


def run(arguments: Namespace) -> None:
    """Train, write the card, and print the results and files."""
    finished = train(load(arguments.recipe, arguments.overrides), arguments.words)
    if finished.is_main:
        write_card(finished.folder / "record.json", finished.folder / "card.md")
        print_table(finished.record["recipe"]["name"], {**run_rows(finished.record), **file_rows(finished.folder)})


if __name__ == "__main__":
    from qkv.scripts.cli import main

    sys.exit(main(["train", *sys.argv[1:]]))
