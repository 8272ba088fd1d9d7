"""Convert a folder of a checkpoint: config, weights, tokenizer and processor, with a certificate."""

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

import qkv
from qkv.modeling.conversion.convert import is_ours, open_checkpoint, read, write
from qkv.modeling.conversion.files import COMPANIONS, CONFIG, INDEX, WEIGHTS, read_json
from qkv.scripts.common.files import cache_folder, file_hash, staged
from qkv.scripts.common.phases import phase
from qkv.scripts.conversion.certificate import Certificate, certify, problems

CERTIFICATE = "certificate.json"
VOCABULARIES = (
    "tokenizer.json vocab.json vocab.txt tokenizer.model spiece.model sentencepiece.bpe.model source.spm".split()
)


def certified_copy(source: Path) -> Path:
    """Return the qkv form of a folder of stock transformers, from our cache or converted and certified now.

    RuntimeError for a folder that cannot be converted without a difference.
    """
    digest = sha256(qkv.__version__.encode())
    files = {path for name in (CONFIG, WEIGHTS, *COMPANIONS) for path in source.glob(name)}
    for path in sorted(files):
        digest.update(f"{path.name} {file_hash(path)}".encode())
    target = cache_folder() / "converted" / digest.hexdigest()[:32]
    if not target.is_dir():
        with staged(target) as folder:
            certificate = convert_checkpoint(source, folder, command=f"qkv convert {source} --check")
            if wrong := problems(certificate or {}):
                raise RuntimeError(f"{source} has no equal copy to start from: {'; '.join(wrong)}")
    return target


def convert_checkpoint(
    source: Path,
    folder: Path,
    *,
    dtype: str | None = None,
    max_shard_size: str | None = None,
    model_type: str | None = None,
    command: str | None = None,
) -> Certificate | None:
    """Write all files of the converted checkpoint, and with a `command` a certificate that names it.

    `model_type` chooses one of several official architectures.
    """
    size = max_shard_size or shard_size(source)
    if dtype:
        # The certificate compares like with like: the source in the precision of the target.
        original, source = source, folder.parent / "recast"
        open_checkpoint(original, dtype=getattr(torch, dtype)).save_pretrained(source)
        companions(original, source)
    with phase(f"converting {source}"):
        model: Any = open_checkpoint(source)
        ours = is_ours(source)
        model = write(model, copies=False, model_type=model_type) if ours else read(model, copies=False)
        model.save_pretrained(folder, max_shard_size=size)
    del model
    companions(source, folder)
    if not is_ours(source):
        name_processors(folder, read_json(source / CONFIG))
    if not command:
        return None
    hashes = {path.name: file_hash(path) for path in sorted(folder.iterdir())}
    certificate = certify(source, folder) | {"command": command, "files": hashes}
    (folder / CERTIFICATE).write_text(json.dumps(certificate, indent=2) + "\n", encoding="utf-8")
    return certificate


def shard_size(source: Path) -> int:
    """Return the size of the source's largest shard; no limit where its weights are one file."""
    if not (source / INDEX).is_file():
        return 2**63
    return max(path.stat().st_size for path in source.glob(WEIGHTS))


def companions(source: Path, target: Path) -> None:
    """Copy tokenizer and processor files, known by their names; no code."""
    for name in COMPANIONS:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def name_processors(target: Path, config: dict[str, Any]) -> None:
    """Write the classes of tokenizer and image processor into their config files.

    Where these do not name them, the Auto classes go by the model type, which is another after the conversion.
    """
    model_type = config["model_type"]
    tokenizer = config.get("tokenizer_class") or TOKENIZER_MAPPING_NAMES.get(model_type)
    if any((target / name).is_file() for name in VOCABULARIES):
        add_missing(target / "tokenizer_config.json", tokenizer_class=tokenizer)
    processor = IMAGE_PROCESSOR_MAPPING_NAMES.get(model_type, {}).get("torchvision")
    path = target / "preprocessor_config.json"
    if path.is_file() and "feature_extractor_type" not in read_json(path):
        add_missing(path, image_processor_type=processor)


def add_missing(path: Path, **fields: str | None) -> None:
    """Add fields to a JSON file that may not exist, unless it has them or they are None."""
    values = read_json(path) if path.is_file() else {}
    added = {name: value for name, value in fields.items() if value and name not in values}
    if added:
        path.write_text(json.dumps({**values, **added}, indent=2) + "\n", encoding="utf-8")
