"""Read a qkv model from memory or a folder, and build the package that is published: weights, code, card, processor."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from qkv import modeling
from qkv.modeling.base import QkvPreTrainedModel
from qkv.modeling.conversion.convert import to_transformers
from qkv.modeling.conversion.files import COMPANIONS, CONFIG, check_tensors_placed, load, named, read_json
from qkv.scripts.common.files import RECORD, similar_folder
from qkv.scripts.common.phases import say
from qkv.scripts.conversion.checkpoint import CERTIFICATE
from qkv.scripts.publishing.card.card import make_card, plain_card
from qkv.scripts.publishing.export.folder import LICENSE, README, build_folder
from qkv.scripts.publishing.export.tested_releases import TESTED, is_outdated, spelled, stated_releases
from qkv.scripts.publishing.hub.options import OF_BUILDING, PublishOptions
from qkv.scripts.publishing.integrity.manifest import MANIFEST, check_files, edited_card, is_document, read_manifest

ModelSource = PreTrainedModel | str | os.PathLike[str]
# The README by the identity in the manifest.
Card = Callable[[str], str]


@dataclass(frozen=True)
class TrainedModel:
    """A qkv model, its processors, the record of its training and the certificate of its conversion, if any.

    `files` are the licenses and processors of a folder: one that is loaded and saved would be in other files.
    """

    model: QkvPreTrainedModel
    processors: list[Any]
    record: Path | None = None
    certificate: dict[str, Any] | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)


def build(source: ModelSource, folder: Path, place: Path | str, options: PublishOptions) -> Path:
    """Build the package of a model in an empty folder and return it, or a folder that was built before.

    One whose code was tested with older releases of transformers than this qkv is built again, and keeps its card.
    `place` is the folder or repository it will have, which the card names. ValueError for a model that is none of
    qkv's, for a folder without one, for weights that do not fit it, and for the record of another model.
    """
    built = None if options.native else built_folder(source)
    if built and not is_outdated(stated_releases(built)):
        options.check_unset(OF_BUILDING, f"{built} is built already, too late for {{}}; name the model it was built of")
        return built
    options.step("read the model")
    trained = read_model_source(source, options)
    options.step("build the folder")
    # Before the card, because conversion explains best why there is no native form.
    model: Any = to_transformers(trained.model) if options.native else trained.model
    is_kept = built is not None and options.record is None and (built / README).is_file()
    card, files = kept_card(built) if built and is_kept else card_of(trained, place, options)
    size = options.max_shard_size or "5GB"
    files, processors = {**files, **trained.files}, trained.processors
    return build_folder(model, folder, processors=processors, card=card, files=files, max_shard_size=size)


def read_model_source(source: ModelSource, options: PublishOptions) -> TrainedModel:
    """Return the model in memory, in a model folder or in a run folder, with its processors, record and certificate."""
    chosen, record = options.processor, None if options.record is None else Path(options.record).expanduser()
    processors = [] if chosen is None else list(chosen) if isinstance(chosen, list | tuple) else [chosen]
    certificate: dict[str, Any] | None = None
    model: Any = source
    files: dict[str, bytes] = {}
    if isinstance(source, PreTrainedModel):
        check_ours(source.config.model_type, type(source).__name__, "qkv.from_transformers(model)")
    else:
        folder = Path(source).expanduser()
        if not folder.is_dir():
            raise ValueError(
                f"there is no folder {folder}; name one with a model, or a run folder{similar_folder(folder)}"
            )
        record = record or (folder if (folder / RECORD).is_file() else None)
        # A certificate is about weights in the precision that they are stored in.
        if (folder / CERTIFICATE).is_file() and options.dtype is None:
            certificate = read_json(folder / CERTIFICATE)
        model = load_saved_model(folder, options.dtype)
        files = {name: each for name, each in companions(folder).items() if is_document(name) or not processors}
    record = record / RECORD if record and record.is_dir() else record
    if record and not record.is_file():
        raise ValueError(f"there is no record at {record}; give a run folder or a record file")
    return TrainedModel(model, processors, record, certificate, files)


def companions(folder: Path) -> dict[str, bytes]:
    """Return the files of licenses and processors by their paths."""
    paths = [*(folder / name for name in COMPANIONS), *sorted(folder.glob("additional_chat_templates/*.jinja"))]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths if path.is_file()}


def load_saved_model(folder: Path, dtype: str | None) -> QkvPreTrainedModel:
    """Load the model of a folder in the class that was saved; every weight must be there and have a place."""
    model_type, name = named(folder)
    check_ours(model_type, name, f"qkv convert {folder} DST")
    model_class = getattr(modeling, name, None)
    if model_class is None:
        raise ValueError(f"this qkv has no {name}, which {folder / CONFIG} names; publish with the qkv that saved it")
    model, unplaced = load(model_class, folder, dtype=getattr(torch, dtype) if dtype else "auto")
    check_tensors_placed(folder, name, unplaced)
    return model


def check_ours(model_type: str, name: str, remedy: str) -> None:
    """Raise ValueError for a model that is not qkv's."""
    if not model_type.startswith("qkv_"):
        raise ValueError(f"{name} is a {model_type} model, not one of qkv's; `{remedy}` makes it one")


def built_folder(source: ModelSource) -> Path | None:
    """Return the folder if it was built before and is no run; IntegrityError if it has changed since."""
    folder = None if isinstance(source, PreTrainedModel) else Path(source).expanduser()
    if folder is None or not (folder / MANIFEST).is_file() or (folder / RECORD).is_file():
        return None
    check_files(folder, f"{folder} is not what was built; build it again from its model")
    return folder


def kept_card(folder: Path) -> tuple[Card, Mapping[str, bytes]]:
    """Return the card of a folder that was built before, for the releases tested today, and the documents beside it."""
    manifest, text = read_manifest(folder), (folder / README).read_text(encoding="utf-8")
    earlier, now = (f"tested with transformers {spelled(each or TESTED)}" for each in (stated_releases(folder), TESTED))
    names = [name for name in manifest["files"] if is_document(name) and name not in (README, LICENSE)]
    files = {name: (folder / name).read_bytes() for name in names}
    return lambda identity: text.replace(manifest["identity"], identity).replace(earlier, now), files


def card_of(trained: TrainedModel, place: Path | str, options: PublishOptions) -> tuple[Card, Mapping[str, bytes]]:
    """Return the card, from the record of a training or from the config alone, and its pictures."""
    known: dict[str, Any] = {"form": "native" if options.native else "self-contained", "other": options.other}
    has_processor = bool(trained.processors) or not all(map(is_document, trained.files))
    known |= {"processor": has_processor} | ({"repo": place} if isinstance(place, str) else {})
    if trained.record is None:
        saved = json.loads(trained.model.config.to_json_string())
        config = {**saved, "architectures": [type(trained.model).__name__]}
        known |= {"name": Path(place).name, "certificate": trained.certificate}
        return lambda identity: str(plain_card(config, digest=identity, **known)), {}
    record = json.loads(trained.record.read_text(encoding="utf-8"))
    count = trained.model.num_parameters()
    if record["parameters"] != count:
        raise ValueError(
            f"{trained.record} is of a model with {record['parameters']:,} parameters and this one has {count:,}; name "
            "the record of its own training"
        )
    pictures = {name: (trained.record.parent / name).read_bytes() for name in record.get("pictures", {})}
    text, _ = edited_card(trained.record.parent)
    if text and not options.native:
        say(f"{trained.record.parent / README} was edited and goes along as it is; remove it for one from the record")
        return lambda identity: text, pictures
    return lambda identity: str(make_card(record, digest=identity, **known)), pictures
