"""Compare an RNN, an RNN with attention and a Transformer, and what long texts cost; write a page with pictures."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from qkv.scripts.common.environment import public_command
from qkv.scripts.common.files import RECORD, write_atomically
from qkv.scripts.common.tables import print_table
from qkv.scripts.lab.history.claims import verdicts
from qkv.scripts.lab.history.figures import draw
from qkv.scripts.lab.history.measure import SIZES, SMALL_MODELS, measure, measure_again, measure_small_models
from qkv.scripts.lab.history.page import page
from qkv.scripts.training.record import read_record, write_record

PAGES = {"README.md": "page.md.j2", "PROMISES.md": "promises.md.j2"}


def run(arguments: Namespace) -> None:
    """Measure, or read a record, and write the page and figures."""
    folder, size = arguments.out, "quick" if arguments.quick else "full"
    command, words = public_command(arguments.words), vars(arguments)
    parts = [part for part in SMALL_MODELS if words[part]]
    if parts or arguments.steps or arguments.lengths or arguments.page:
        record = read(folder)
    else:
        check_new(folder, arguments.seed)
        folder.mkdir(parents=True, exist_ok=True)
        record, parts = measure(SIZES[size], arguments.seed, command), list(SMALL_MODELS)
    for part in (part for part in ("steps", "lengths") if words[part]):
        record = measure_again(record, part, command)
    for part in parts:
        for own in measure_small_models(record.get(part, {}), part, size, command):
            record[part] = own
            write_record(folder, record)
    write_record(folder, record)
    publish(record, folder)
    print_table(f"claims, {folder}", {one["claim"]: one["verdict"] for one in verdicts(record)})


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
    for name, template in PAGES.items():
        write_atomically(folder / name, page(record, template))
