"""Write the model card of a finished run again, from its record alone."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from qkv.scripts.publishing.card import write_card

EXAMPLE = "qkv card runs/first"


def add_arguments(parser: ArgumentParser) -> None:
    """Which record."""
    parser.add_argument("record", type=Path, help="a run folder, whose card.md is written, or a record file NAME.json")


def run(arguments: Namespace) -> None:
    """Write the card beside the record, and print its path."""
    record = arguments.record / "record.json" if arguments.record.is_dir() else arguments.record
    card = record.with_name("card.md") if arguments.record.is_dir() else record.with_suffix(".md")
    if not record.is_file():
        raise FileNotFoundError(f"there is no record at {record}; give a run folder or a record file")
    write_card(record, card)
    print(card)


if __name__ == "__main__":
    from qkv.scripts.cli import main

    sys.exit(main(["card", *sys.argv[1:]]))
