"""Compare an RNN, an RNN with attention and a Transformer: quality, time, gradients and activations by length.

Writes a record, pictures, and a page with the documents' claims beside what was measured.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from qkv.scripts.common.environment import public_command
from qkv.scripts.common.files import write_atomically
from qkv.scripts.common.tables import print_table
from qkv.scripts.history.claims import verdicts
from qkv.scripts.history.figures import draw
from qkv.scripts.history.measure import SIZES, measure, measure_steps_again
from qkv.scripts.history.page import page
from qkv.scripts.training.record import RECORD, read_record, write_record

EXAMPLE = "qkv compare-history --out runs/history"
PAGE = "README.md"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the seed, the size and the folder of the results."""
    parser.add_argument("--out", type=Path, default=Path("runs/history"), help="folder of the results")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights and the data (0)")
    parser.add_argument(
        "--quick", action="store_true", help="take seconds instead of a quarter of an hour; the results mean nothing"
    )
    parser.add_argument("--steps", action="store_true", help="time training steps again, into the record in OUT")
    parser.add_argument("--page", action="store_true", help="write page and figures again from the record in OUT")


def run(arguments: Namespace) -> None:
    """Measure, or read a record, and write the page and figures."""
    folder = arguments.out
    command = public_command(arguments.words)
    if arguments.steps or arguments.page:
        record = read(folder)
        record = measure_steps_again(record, command) if arguments.steps else record
    else:
        check_new(folder, arguments.seed)
        folder.mkdir(parents=True, exist_ok=True)
        record = measure(SIZES["quick" if arguments.quick else "full"], arguments.seed, command)
    write_record(folder, record)
    publish(record, folder)
    print_table(f"claims, {folder / PAGE}", {one["claim"]: one["verdict"] for one in verdicts(record)})


def check_new(folder: Path, seed: int) -> None:
    """Raise before measuring what could not be written, or would test on training data."""
    if seed < 0:
        raise ValueError(f"--seed={seed} is below 0, where training and test data would overlap; take 0 or more")
    if (folder / RECORD).exists():
        raise FileExistsError(f"{folder} has a record already; give --page to write its page again, or another --out")


def read(folder: Path) -> dict[str, Any]:
    """Read a record of this command; ValueError for another one."""
    path = folder / RECORD
    if not path.is_file():
        raise FileNotFoundError(f"there is no record at {path}; leave --page out to make one")
    record = read_record(folder)
    if "activations" not in record:
        raise ValueError(f"{path} is no record of compare-history; give its --out")
    return record


def publish(record: dict[str, Any], folder: Path) -> None:
    """Write the page and figures of a record."""
    draw(record, folder)
    write_atomically(folder / PAGE, page(record))
