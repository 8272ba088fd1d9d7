"""What is it that is published? A model with what makes its inputs, and what is known of how it came to be."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoFeatureExtractor, AutoImageProcessor, AutoProcessor, AutoTokenizer, PreTrainedModel

from qkv import modeling
from qkv.modeling.base import QkvPreTrainedModel
from qkv.modeling.conversion.files import CONFIG, load, named, read_json, refuse_unknown
from qkv.scripts.publishing.integrity.files import file_rows
from qkv.scripts.publishing.integrity.manifest import MANIFEST, IntegrityError, brief, read_manifest

RECORD, CERTIFICATE, MODEL = "record.json", "certificate.json", "model"
PROCESSOR, READER, TOKENIZERS = (
    "processor_config.json",
    "preprocessor_config.json",
    ("tokenizer.json", "tokenizer_config.json"),
)


@dataclass(frozen=True)
class Source:
    """A qkv model, its processors, the record of its training and the certificate of its conversion, if any."""

    model: QkvPreTrainedModel
    processors: list[Any] = field(default_factory=list)
    record: Path | None = None
    certificate: dict[str, Any] | None = None


def read_source(
    source: PreTrainedModel | str | os.PathLike[str],
    *,
    processor: Any = None,
    record: str | os.PathLike[str] | None = None,
    dtype: str | None = None,
) -> Source:
    """The model that is given or lies in a folder, which may be that of a run, with what lies beside it.

    ValueError for a model that is none of ours, for a folder without one, and for weights that do not fit it.
    """
    given = [] if processor is None else list(processor) if isinstance(processor, list | tuple) else [processor]
    if isinstance(source, PreTrainedModel):
        model: Any = source
        refuse_others(model.config.model_type, type(model).__name__, "qkv.from_transformers(model)")
        return Source(model, given, located_record(record))
    folder = Path(source).expanduser()
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}; name one with a model, or a run folder")
    run, folder = folder, model_folder(folder)
    if record is None and run != folder and (run / RECORD).is_file():
        record = run / RECORD
    certificate = read_json(folder / CERTIFICATE) if (folder / CERTIFICATE).is_file() and dtype is None else None
    return Source(read_model(folder, dtype), given or readers(folder), located_record(record), certificate)


def model_folder(folder: Path) -> Path:
    """Where the model of a run lies, or the folder itself."""
    inner = folder / MODEL
    return inner if (inner / CONFIG).is_file() and not (folder / CONFIG).is_file() else folder


def located_record(record: str | os.PathLike[str] | None) -> Path | None:
    """The file of a record that may be named by its run folder."""
    if record is None:
        return None
    path = Path(record).expanduser()
    path = path / RECORD if path.is_dir() else path
    if not path.is_file():
        raise ValueError(f"there is no record at {path}; give a run folder or a record file")
    return path


def read_model(folder: Path, dtype: str | None) -> QkvPreTrainedModel:
    """The model of a folder in the class that was saved, all of its weights read and all of them used."""
    model_type, name = named(folder)
    refuse_others(model_type, name, f"qkv convert {folder} DST")
    model_class = getattr(modeling, name, None)
    if model_class is None:
        raise ValueError(
            f"this qkv has no {name}, which {folder / CONFIG} names; publish with the version that saved it"
        )
    model, unplaced = load(model_class, folder, dtype=getattr(torch, dtype) if dtype else "auto")
    refuse_unknown(folder, name, unplaced)
    return model


def refuse_others(model_type: str, name: str, remedy: str) -> None:
    """Raise ValueError for a model that is none of ours."""
    if not model_type.startswith("qkv_"):
        raise ValueError(f"{name} is a {model_type} model, not one of qkv's; `{remedy}` makes it one")


def readers(folder: Path) -> list[Any]:
    """What makes a model's inputs, as the files beside it tell."""
    if (folder / PROCESSOR).is_file():
        return [AutoProcessor.from_pretrained(folder)]
    found = [AutoTokenizer.from_pretrained(folder)] if any((folder / name).is_file() for name in TOKENIZERS) else []
    if (folder / READER).is_file():
        sound = "feature_extractor_type" in read_json(folder / READER)
        found.append((AutoFeatureExtractor if sound else AutoImageProcessor).from_pretrained(folder))
    return found


def built_folder(source: PreTrainedModel | str | os.PathLike[str]) -> Path | None:
    """The folder that was named, if it was built before; IntegrityError if it is not what was built."""
    if isinstance(source, PreTrainedModel) or not (Path(source).expanduser() / MANIFEST).is_file():
        return None
    folder = Path(source).expanduser()
    wrong = [finding for row in file_rows(folder, read_manifest(folder)) for finding in row.findings]
    if wrong:
        raise IntegrityError(f"{folder} is not what was built: {brief(wrong)}; build it again from its model")
    return folder
