"""Make the folder of a finished run one that loads anywhere: code and manifest beside its weights, the card as README.

The record, the metrics and the checkpoints stay beside the model, and are no part of it.
"""

from pathlib import Path

from transformers import PreTrainedModel

from qkv.configuration.configuration_base import QkvConfig
from qkv.modeling.conversion.files import CONFIG, write_json
from qkv.scripts.common.files import RECORD
from qkv.scripts.publishing.card.card import record_card, write_card
from qkv.scripts.publishing.export.folder import complete_folder
from qkv.scripts.publishing.export.tested_releases import UNSTATED, spelled
from qkv.scripts.publishing.integrity.manifest import MANIFEST, listed, read_manifest
from qkv.scripts.publishing.integrity.manifest_types import RELEASES

README, CARD = "README.md", "card.md"


def complete_run(folder: Path, model: PreTrainedModel) -> None:
    """Add code, card and manifest to the model of a finished run.

    A stock model needs the card alone, as does a run of an earlier qkv, whose model has a folder of its own.
    """
    if isinstance(model.config, QkvConfig) and (folder / CONFIG).is_file():
        complete_folder(folder, model, lambda digest: record_card(folder / RECORD, digest=digest))
    else:
        write_run_card(folder)


def write_run_card(folder: Path) -> Path:
    """Write the card from the record of a folder, as the README of the model beside it, and return its path."""
    card = folder / (README if (folder / CONFIG).is_file() else CARD)
    if not (folder / MANIFEST).is_file():
        write_card(folder / RECORD, card)
        return card
    manifest = read_manifest(folder)
    tested = spelled(manifest.get(RELEASES, UNSTATED))
    write_card(folder / RECORD, card, digest=manifest["identity"], tested=tested)
    manifest["files"][card.name] = listed(card)
    write_json(folder / MANIFEST, manifest)
    return card
