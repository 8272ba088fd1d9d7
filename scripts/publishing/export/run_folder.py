"""Make the folder of a finished run one that loads anywhere: code and manifest beside its weights, the card as README.

The record, the metrics and the checkpoints stay beside the model, and are no part of it.
"""

from pathlib import Path

from transformers import PreTrainedModel

from qkv.configuration.configuration_base import QkvConfig
from qkv.modeling.conversion.files import CONFIG
from qkv.scripts.common.files import RECORD, write_atomically, write_json
from qkv.scripts.common.phases import say
from qkv.scripts.publishing.card.card import record_card
from qkv.scripts.publishing.export.folder import README, complete_folder
from qkv.scripts.publishing.export.tested_releases import TESTED, spelled, stated_releases
from qkv.scripts.publishing.integrity.manifest import MANIFEST, edited_card, listed, read_manifest

CARD, EDITED = "card.md", "README.edited.md"


def complete_run(folder: Path, model: PreTrainedModel) -> None:
    """Add code, card and manifest to the model of a finished run; a stock model needs the card alone.

    A card that a person has edited stays, or moves where the model is another one.
    """
    text, identity = edited_card(folder)
    if text:
        write_atomically(folder / EDITED, text)
    if not isinstance(model.config, QkvConfig) or not (folder / CONFIG).is_file():
        write_run_card(folder)
        return
    complete_folder(folder, model, lambda digest: record_card(folder / RECORD, digest=digest))
    if text and text == (folder / README).read_text(encoding="utf-8"):
        (folder / EDITED).unlink()  # the card of this model, whose manifest a kill prevented
    elif text and read_manifest(folder)["identity"] == identity:
        (folder / EDITED).replace(folder / README)
        say(f"{folder / README} was edited and stays; remove it for one from the record")
    elif text:
        say(f"{folder / README} was edited for an earlier model; it is now {EDITED}, beside the card of this one")


def write_run_card(folder: Path) -> Path:
    """Write the card from the record of a folder, as the README of the model beside it, and return its path."""
    card = folder / (README if (folder / CONFIG).is_file() else CARD)
    manifest = read_manifest(folder) if (folder / MANIFEST).is_file() else {}
    tested = spelled(stated_releases(folder) or TESTED)
    write_atomically(card, record_card(folder / RECORD, digest=manifest.get("identity"), tested=tested))
    if manifest:
        manifest["files"][card.name] = listed(card)
        write_json(folder / MANIFEST, manifest)
    return card
