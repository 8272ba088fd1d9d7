"""Compare an RNN, an RNN with attention and a Transformer, and what long texts cost; write a page with pictures."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from qkv.scripts.common.environment import public_command
from qkv.scripts.common.files import RECORD, write_atomically
from qkv.scripts.common.tables import print_table
from qkv.scripts.lab.history.claims import verdicts
from qkv.scripts.lab.history.figures import draw
from qkv.scripts.lab.history.measure import AGAIN, PARTS, SIZES, measure, measure_part
from qkv.scripts.lab.history.page import page
from qkv.scripts.training.record import read_record, write_record

PAGE = "README.md"


def run(arguments: Namespace) -> None:
    """Measure, or read a record, and write the page and figures."""
    folder, size = arguments.out, "quick" if arguments.quick else "full"
    command, asked = public_command(arguments.words), {name for name, value in vars(arguments).items() if value is True}
    parts = PARTS.keys() & asked
    if parts or asked & {*AGAIN, "page"}:
        record = read(folder)
    else:
        check_new(folder, arguments.seed)
        folder.mkdir(parents=True, exist_ok=True)
        record, parts = measure(SIZES[size], arguments.seed, command), PARTS.keys()
    for part in AGAIN.keys() & asked:
        record = AGAIN[part](record, command)
    for part in parts:
        for further in measure_part(record, part, size, command):
            record = further
            write_record(folder, record)
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
        raise FileNotFoundError(f"there is no record at {path}; give --out alone to make one")
    record = read_record(folder)
    if "activations" not in record:
        raise ValueError(f"{path} is no record of compare-history; give its --out")
    return record


def publish(record: dict[str, Any], folder: Path) -> None:
    """Write the page and figures of a record."""
    draw(record, folder)
    write_atomically(folder / PAGE, page(record))
