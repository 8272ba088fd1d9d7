"""Train a recipe and the stock model of transformers on the same data and steps, from several seeds; then the card.

Our model of the first seed is completed as by `qkv quickstart`: figures, card, Hub folder, and that loaded again.
"""

import sys
from argparse import ArgumentParser, Namespace
from datetime import datetime
from pathlib import Path

from qkv.scripts import train
from qkv.scripts.common.tables import comparison_rows, print_table
from qkv.scripts.quickstart import complete
from qkv.scripts.recipes.loading import load
from qkv.scripts.training.comparison import compare

EXAMPLE = "qkv compare docs-classify out=runs/areas --also pre-trained init=runs/mlm/model --seeds 0 1 2"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the recipe, further models and the seeds."""
    train.add_arguments(parser)
    help = "name and key=value overrides of another model to compare with; may be repeated"
    parser.add_argument("--also", nargs="+", action="append", default=[], metavar=("NAME", "key=value"), help=help)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="seeds to train each model from")


def run(arguments: Namespace) -> None:
    """Train all, and print one table: means over the seeds, minimum and maximum."""
    seeds = list(dict.fromkeys(arguments.seeds))
    recipe = load(arguments.recipe, arguments.overrides)
    folder = Path(recipe.output.folder or f"runs/{recipe.name}-{datetime.now():%Y%m%d-%H%M%S}")
    also = {name: words for name, *words in arguments.also}
    ours = compare(arguments.recipe, arguments.overrides, also, seeds, folder, arguments.words)
    if not ours.is_main:
        return
    complete(ours)
    print_table(f"{recipe.name}, seeds {', '.join(map(str, seeds))}", comparison_rows(ours.record["comparison"]))


if __name__ == "__main__":
    from qkv.scripts.cli import main

    sys.exit(main(["compare", *sys.argv[1:]]))
