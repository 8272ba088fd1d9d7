"""Train a recipe and the stock model of transformers on the same data and steps, from several seeds; then the card.

Ours of the first seed goes the way of `qkv quickstart`: it is drawn, described, put in a Hub folder and loaded again.
"""

import sys
from argparse import ArgumentParser, Namespace
from datetime import datetime
from pathlib import Path

from qkv.scripts import train
from qkv.scripts.common.tables import compared, show
from qkv.scripts.quickstart import complete
from qkv.scripts.recipes.schema import load
from qkv.scripts.training.comparison import compare

EXAMPLE = "qkv compare docs-classify out=runs/areas --also pre-trained init=runs/mlm/model --seeds 0 1 2"


def add_arguments(parser: ArgumentParser) -> None:
    """What to train, what to change about it, and how often."""
    train.add_arguments(parser)
    help = "a name and the fields of the recipe that another model to compare with changes; may be given again"
    parser.add_argument("--also", nargs="+", action="append", default=[], metavar=("NAME", "key=value"), help=help)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="a run of each model for each of them")


def run(arguments: Namespace) -> None:
    """Train all, and print one table: means over the seeds, least and greatest."""
    seeds = list(dict.fromkeys(arguments.seeds))
    recipe = load(arguments.recipe, arguments.overrides)
    folder = Path(recipe.out or f"runs/{recipe.name}-{datetime.now():%Y%m%d-%H%M%S}")
    also = {name: words for name, *words in arguments.also}
    ours = compare(arguments.recipe, arguments.overrides, also, seeds, folder, arguments.words)
    if not ours.is_main:
        return
    complete(ours)
    show(f"{recipe.name}, seeds {', '.join(map(str, seeds))}", compared(ours.record["comparison"]))


if __name__ == "__main__":
    from qkv.scripts.cli import main

    sys.exit(main(["compare", *sys.argv[1:]]))
