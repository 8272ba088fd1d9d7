"""The command `qkv runs`: runs that were trained or are being trained, in one table and one figure."""

import json
from argparse import Namespace

from qkv.scripts.common.extras import load
from qkv.scripts.common.files import write_atomically
from qkv.scripts.common.tables import print_columns
from qkv.scripts.runs.comparison import lines
from qkv.scripts.runs.reading import find_runs

LEGEND = "key=value: fields in which runs of one recipe differ; min: minutes in training"


def run(arguments: Namespace) -> None:
    """Print the table, and write the figure and the JSON where they are asked for."""
    if arguments.last is not None and arguments.last < 1:
        raise ValueError(f"--last={arguments.last} must be at least 1")
    figure = None
    if arguments.out:
        figure = load("qkv.scripts.runs.figure")
        figure.check_format(arguments.out)
    runs = find_runs(arguments.folders)[: arguments.last]
    print_columns("", lines(runs), LEGEND, left=("run", "steps", "validation", "test"))
    if figure is not None:
        figure.draw(runs, arguments.out)
        print(f"the figure: {arguments.out}")
    if arguments.json:
        write_atomically(arguments.json, json.dumps([one.as_json() for one in runs], indent=2) + "\n")
