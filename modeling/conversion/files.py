"""Is a checkpoint's folder whole? Every file of it is looked at before a model is made of any."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, GenerationConfig, PreTrainedModel
from transformers.utils import logging

from ...configuration.saved_config import check_saved_config
from .amount import check_amount

CONFIG, SINGLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
GENERATION = "generation_config.json"
# Of fields that are used before a config checks them; parts may have a dtype each.
TYPES: dict[str, tuple[type, ...]] = {
    "model_type": (str,), "architectures": (list,), "auto_map": (dict,), "dtype": (str, dict),
    "torch_dtype": (str, dict),
}  # fmt: skip
# Formats that can run code when they are read, or that transformers no longer reads.
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack", "model.ckpt")
LONGEST_NAME = 255  # bytes
# What makes inputs of text, images or sound: it belongs to a model whatever its weights are called.
COMPANIONS = tuple(
    "tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json vocab.json vocab.txt merges.txt "
    "tokenizer.model spiece.model sentencepiece.bpe.model source.spm target.spm target_vocab.json spm.model "
    "normalizer.json chat_template.jinja chat_template.json preprocessor_config.json processor_config.json "
    "LICENSE LICENSE.txt NOTICE".split()
)


def located(
    source: str | os.PathLike[str],
    revision: str | None = None,
    fetch: Callable[[str, str | None], Path] | None = None,
) -> Path:
    """Return the folder of a checkpoint; a Hub id is fetched into the cache, as a rule without pickles and code.

    A revision may stand behind the id, as in `user/name@v1`.
    """
    folder = Path(os.path.expanduser(source))
    if folder.is_dir():
        return folder
    name = os.fspath(source)
    if isinstance(source, os.PathLike) or name.startswith((".", "~", os.sep)):
        raise ValueError(f"folder {folder} does not exist")
    name, revision = at_revision(name, revision)
    try:
        return (fetch or fetched)(name, revision)
    except HFValidationError:
        why = "its form is not user/name"
    except GatedRepoError:
        why = "the Hub gives it only to those who have accepted its terms there and run `hf auth login`"
    except (RepositoryNotFoundError, RevisionNotFoundError):
        why = f"the Hub has no such repository or revision {revision or 'main'}, or only for those who are logged in"
    except FileNotFoundError:
        why = "it is not in the cache and the Hub cannot be reached"
    raise ValueError(f"{name} is neither a folder here nor a checkpoint that the Hub gives: {why}")


def at_revision(name: str, revision: str | None) -> tuple[str, str | None]:
    """Return a Hub id and its revision, which may stand behind an @ if it is not given apart."""
    own, _, behind = name.partition("@")
    return (own, behind) if behind and revision is None else (name, revision)


def fetched(name: str, revision: str | None) -> Path:
    """Fetch what conversion reads of a Hub checkpoint, and return its folder in the cache."""
    wanted = [CONFIG, GENERATION, SINGLE, INDEX, *COMPANIONS]
    folder = Path(snapshot_download(name, revision=revision, allow_patterns=wanted))
    if (folder / INDEX).is_file():  # a branch may have moved, so the rest comes from the same commit
        folder = Path(snapshot_download(name, revision=folder.name, allow_patterns=[*wanted, *shards(folder)]))
    return folder


def write_json(path: Path, values: object) -> None:
    """Write JSON, whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(json.dumps(values, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def read_json(path: Path, pairs: Callable[[list[tuple[str, Any]]], dict[str, Any]] = dict) -> dict[str, Any]:
    """Read a JSON object of a checkpoint; `pairs` makes each object of its keys and values."""
    if not path.is_file():
        raise ValueError(f"{path.parent} has no {path.name}; a checkpoint is a folder with its config and its weights")
    try:
        values = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise ValueError(f"{path} is not a JSON object; download it again")
    return values


def named(folder: Path) -> tuple[str, str]:
    """Return the model type and the class that a config.json names, by their names of today."""
    saved = read_json(folder / CONFIG)
    for field, kinds in TYPES.items():
        if not isinstance(value := saved.get(field), (*kinds, type(None))):
            raise ValueError(
                f"{field}={value!r} of {folder / CONFIG} is of type {type(value).__name__}, expected "
                f"{kinds[0].__name__}; mend it, or download it again"
            )
    config = check_saved_config(saved)
    for field in ("model_type", "architectures"):
        if not config.get(field):
            raise ValueError(f"{folder / CONFIG} names no {field}; add what the weights were saved from")
    return str(config["model_type"]), str(config["architectures"][0])


def is_too_long(name: str) -> bool:
    """Return whether no file can have such a name, about which file systems raise what they do not of other names."""
    return len(name.encode("utf-8", "surrogatepass")) > LONGEST_NAME


def shards(folder: Path) -> dict[str, set[str]]:
    """Map each file to the tensors that the index says it holds."""
    placed = read_json(folder / INDEX).get("weight_map")
    if not isinstance(placed, dict) or not all(isinstance(name, str) for name in placed.values()):
        raise ValueError(f"{folder / INDEX} has no weight_map from tensors to files; download it again")
    files: dict[str, set[str]] = {}
    for tensor, name in placed.items():
        if Path(name).name != name:
            raise ValueError(f"{folder / INDEX} leads out of its folder, to {name!r}; do not use this checkpoint")
        if is_too_long(name):
            raise ValueError(
                f"{folder / INDEX} names {name[:40]!r}…, longer than names of files are; download it again"
            )
        files.setdefault(name, set()).add(tensor)
    return files


def weight_files(folder: Path) -> dict[str, set[str]]:
    """Map each file to the tensors it has to hold, none known for a single file."""
    one, many = (folder / SINGLE).is_file(), (folder / INDEX).is_file()
    if one and many:
        raise ValueError(f"{folder} has both {SINGLE} and {INDEX}; delete the one that is out of date")
    if one:
        return {SINGLE: set()}
    if many:
        return shards(folder)
    pickles = [name for name in PICKLES if (folder / name).exists()]
    if not pickles:
        raise ValueError(
            f"{folder} has no {SINGLE} and no {INDEX}; convert its weights to safetensors first, and pickles "
            "(pytorch_model.bin) only with `torch.load(path, weights_only=True)`"
        )
    raise ValueError(
        f"{folder} has its weights only in {pickles[0]}, a format that can run code when it is read; convert it with "
        "`safetensors.torch.save_file(torch.load(path, weights_only=True), 'model.safetensors')`, or at "
        "https://huggingface.co/spaces/safetensors/convert"
    )


def tensor_files(folder: Path) -> dict[str, Path]:
    """Map each tensor of a checkpoint to its file, after checking that the files are there and whole."""
    files: dict[str, Path] = {}
    for name, wanted in weight_files(folder).items():
        file = folder / name
        if not file.is_file():
            raise ValueError(f"{folder} is half downloaded: {name}, which {INDEX} names, is not there; download it")
        try:
            with safe_open(file, framework="pt") as opened:
                held = set(opened.keys())
        except SafetensorError as error:
            raise ValueError(f"{file} is cut short or damaged ({error}); download it again") from None
        if missing := wanted - held:
            raise ValueError(f"{file} has no tensor {min(missing)}, which {INDEX} says it has; download both again")
        if twice := held & files.keys():
            other = files[min(twice)].name
            raise ValueError(f"tensor {min(twice)} is in {name} and in {other} of {folder}; download both again")
        files |= dict.fromkeys(held, file)
    return files


def mapped(file: Path, name: str) -> torch.Tensor:
    """Map a tensor to memory, so that it is read from its file when it is used.

    Each has a mapping of its own: one for the whole file would keep all of it in memory until the last of its tensors
    has been converted.
    """
    with safe_open(file, framework="pt") as opened:
        return opened.get_tensor(name)


def load(
    model_class: type[PreTrainedModel],
    folder: Path,
    within: Callable[[], AbstractContextManager[object]] = nullcontext,
    **options: Any,
) -> tuple[Any, set[str]]:
    """Load a checkpoint with all of its weights, and return the model and the tensors it has no place for.

    transformers fills the model, for it knows the names that older releases wrote; what it would fill with random
    numbers is an error. `within` is what it does so in, files apart.
    """
    with wrong_values(folder):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    weights = {name: mapped(file, name) for name, file in tensor_files(folder).items()}
    with quiet(), wrong_values(folder):
        check_amount(model_class, config, weights, folder / CONFIG)
    with quiet(), within(), wrong_values(folder):
        loaded: Any = model_class.from_pretrained(
            None,
            config=config,
            state_dict=weights,
            ignore_mismatched_sizes=True,  # reported below by name, not raised as a table
            output_loading_info=True,
            **options,
        )
    model, report = loaded
    for name, shape, wanted in sorted(report["mismatched_keys"]):
        raise ValueError(
            f"tensor {name} of {folder} has shape {tuple(shape)} where {model_class.__name__} has {tuple(wanted)}; "
            "mend the sizes in config.json"
        )
    for name in sorted(report["missing_keys"]):
        raise ValueError(
            f"{folder} has no tensor {name}, which {model_class.__name__} needs; download it again, or name in its "
            "config.json the architecture that was saved"
        )
    if model.can_generate():
        model.generation_config = generation_settings(folder)
    return model, set(report["unexpected_keys"])


@contextmanager
def wrong_values(folder: Path) -> Iterator[None]:
    """Raise ValueError in one sentence where a value of a config makes transformers raise anything else."""
    try:
        yield
    except (ValueError, OSError, ImportError):
        raise
    except Exception as error:
        cause = error.__cause__ or error
        reason = f"{type(cause).__name__}: {' '.join(str(cause).split())}"
        raise ValueError(
            f"{folder / CONFIG} has a value that transformers cannot use ({reason}); mend it, or download it again"
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' table of what did not fit: here it is an error, or said in a sentence."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def generation_settings(folder: Path) -> GenerationConfig:
    """Return the generation config of a checkpoint; before there was a file for it, its config held it."""
    if (folder / GENERATION).is_file():
        return GenerationConfig.from_pretrained(folder)
    return GenerationConfig.from_pretrained(folder, config_file_name=CONFIG, _from_model_config=True)


def check_tensors_placed(folder: Path, name: str, keys: set[str]) -> None:
    """Raise where a folder holds more than its class has places for."""
    for key in sorted(keys):
        raise ValueError(
            f"{folder} has tensor {key}, for which {name} of its config.json has no place; name the architecture that "
            "was saved, or save the plain model without additions"
        )
