"""Compare an RNN, an RNN with attention and a Transformer: quality, time, gradients and activations by length.

Writes a record, pictures, and a page with the documents' claims beside what was measured.
"""

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from qkv.scripts.common.files import write_atomically
from qkv.scripts.common.tables import show
from qkv.scripts.history.claims import judged
from qkv.scripts.history.figures import draw
from qkv.scripts.history.measure import FULL, QUICK, measured, timed_again
from qkv.scripts.history.page import page
from qkv.scripts.training.record import typed, write_record

EXAMPLE = "qkv compare-history --out runs/history"
RECORD, PAGE = "record.json", "README.md"


def add_arguments(parser: ArgumentParser) -> None:
    """How much, from which seed, and where the results go."""
    parser.add_argument("--out", type=Path, default=Path("runs/history"), help="the folder of the results")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the letters (0)")
    parser.add_argument(
        "--quick", action="store_true", help="seconds instead of a quarter of an hour; figures say nothing"
    )
    parser.add_argument("--steps", action="store_true", help="measure training steps again, into the record in OUT")
    parser.add_argument("--page", action="store_true", help="write page and pictures again from the record in OUT")


def run(arguments: Namespace) -> None:
    """Measure, unless a record is there to be read, and write everything that follows from it."""
    folder = arguments.out
    command = typed(arguments.words)
    if arguments.steps or arguments.page:
        record = read(folder / RECORD)
        record = timed_again(record, command) if arguments.steps else record
    else:
        refuse_used(folder, arguments.seed)
        folder.mkdir(parents=True, exist_ok=True)
        record = measured(QUICK if arguments.quick else FULL, arguments.seed, command)
    write_record(folder, record)
    publish(record, folder)
    show(f"claims, {folder / PAGE}", {one["claim"]: one["verdict"] for one in judged(record)})


def refuse_used(folder: Path, seed: int) -> None:
    """Raise before work is done that could not be kept, or would be about texts of the lessons."""
    if seed < 0:
        raise ValueError(f"--seed={seed} is below 0, where the letters of lessons and exams meet; take 0 or more")
    if (folder / RECORD).exists():
        raise FileExistsError(f"{folder} has a record already; give --page to write its page again, or another --out")


def read(path: Path) -> dict[str, Any]:
    """A record of this command; ValueError for another one."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no record at {path}; leave --page out to make one")
    found = json.loads(path.read_text(encoding="utf-8"))
    if "activations" not in found:
        raise ValueError(f"{path} is no record of compare-history; give its --out")
    return dict(found)


def publish(record: dict[str, Any], folder: Path) -> None:
    """Pictures and page of a record."""
    draw(record, folder)
    write_atomically(folder / PAGE, page(record))


if __name__ == "__main__":
    from qkv.scripts.cli import main

    sys.exit(main(["compare-history", *sys.argv[1:]]))
