"""Train a recipe, complete its folder and print the results."""

import sys
from argparse import Namespace
from collections.abc import Callable

from qkv.scripts.common.phases import phase, say
from qkv.scripts.common.tables import file_rows, print_table, run_rows
from qkv.scripts.data.inference.own_recipe import recipe_of
from qkv.scripts.publishing.export.run_folder import complete_run
from qkv.scripts.training.run import Run, train


def complete(finished: Run) -> None:
    """Complete the run folder, so that it loads anywhere."""
    with phase(f"writing code, card and manifest to {finished.folder}"):
        complete_run(finished.folder, finished.model)


def run(arguments: Namespace, complete: Callable[[Run], None] = complete) -> None:
    """Train, complete the run folder, and print the results and files."""
    finished = train(recipe_of(arguments.recipe, arguments.overrides), arguments.words, complete=complete)
    if finished.is_main:
        print_table(finished.record["recipe"]["name"], {**run_rows(finished.record), **file_rows(finished.folder)})
        say(f"next: qkv evaluate {finished.folder}, or qkv publish {finished.folder} ./published")


if __name__ == "__main__":
    from qkv.scripts.cli import main

    sys.exit(main(["train", *sys.argv[1:]]))
