"""Write the model card of a finished run again, from its record alone."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from qkv.scripts.publishing.card.card import FOLDER, write_card

EXAMPLE = "qkv card runs/first"


def add_arguments(parser: ArgumentParser) -> None:
    """Which record, or all that are published."""
    help = "a run folder, whose card.md is written, or a record file NAME.json, beside which NAME.md is"
    parser.add_argument("record", type=Path, nargs="?", help=help)
    parser.add_argument("--all", action="store_true", help="every record in model_cards")


def run(arguments: Namespace) -> None:
    """Write each card beside its record, and print its path."""
    if arguments.all == (arguments.record is not None):
        raise ValueError("card takes either a record or --all; name a run folder or a record file")
    records = sorted(FOLDER.glob("*.json")) if arguments.all else [arguments.record]
    if not records:
        raise FileNotFoundError("there are no records to write all cards from; they are in a checkout of qkv only")
    for record in records:
        print(write(record))


def write(record: Path) -> Path:
    """Write the card of a run folder or a record file, and return where it is."""
    card = record / "card.md" if record.is_dir() else record.with_suffix(".md")
    path = record / "record.json" if record.is_dir() else record
    if not path.is_file():
        raise FileNotFoundError(f"there is no record at {path}; give a run folder or a record file")
    write_card(path, card)
    return card


if __name__ == "__main__":
    from qkv.scripts.cli import main

    sys.exit(main(["card", *sys.argv[1:]]))
