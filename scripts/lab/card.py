"""Write the model card of a finished run again, from its record alone."""

from argparse import Namespace
from pathlib import Path

from qkv.scripts.common.files import RECORD, write_atomically
from qkv.scripts.publishing.card.card import FOLDER, record_card
from qkv.scripts.publishing.export.run_folder import CARD, write_run_card
from qkv.scripts.recipes.loading import names


def run(arguments: Namespace) -> None:
    """Write each card beside its record, and print its path."""
    if arguments.all == (arguments.record is not None):
        raise ValueError("card takes either a record or --all; name a run folder or a record file")
    records = published_records() if arguments.all else [arguments.record]
    if not records:
        raise FileNotFoundError("there are no records to write all cards from; they are in a checkout of qkv only")
    for record in records:
        print(write(record))


def published_records() -> list[Path]:
    """Return the records in model_cards, one folder for each recipe."""
    return [path for name in sorted(names()) if (path := FOLDER / name / RECORD).is_file()]


def write(record: Path) -> Path:
    """Write the card of a run folder or a record file, and return its path."""
    path = record / RECORD if record.is_dir() else record
    if not path.is_file():
        raise FileNotFoundError(f"there is no record at {path}; give a run folder or a record file")
    if path.name == RECORD:
        return write_run_card(path.parent)
    card = path.with_name(CARD)
    write_atomically(card, record_card(path))
    return card
