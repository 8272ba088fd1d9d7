"""The arguments of `qkv sweep`, as those of other commands in scripts/arguments.py."""

from argparse import ArgumentParser


def sweep(parser: ArgumentParser) -> None:
    """Train a recipe with several values of its fields, and say which are the best.

    A field takes a list, as in `learning_rate=1e-3,3e-3`, or a range, as in `learning_rate=1e-4..1e-2`. Lists alone
    make a grid; with a range, optuna chooses each next trial by what the earlier ones reached. The validation split
    decides, by the metric of `watch` or the task's own, and never the test split. Every trial is a run folder in OUT;
    the same command goes on with what is missing.

    Example: qkv sweep digits learning_rate=1e-4..1e-2 batch_size=16,32 --trials 12 out=runs/sweep
    """
    parser.add_argument("recipe", metavar="RECIPE", help="a recipe, a YAML file, or data; with --help: its fields")
    varied = "a field of the recipe and its value, its values (1,2) or its range (1..9)"
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help=varied)
    parser.add_argument("--trials", type=int, metavar="N", help="trainings, where a field has a range (20)")
