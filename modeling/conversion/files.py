"""Read and write the files of checkpoints: no random weight for a missing one, none left out in silence."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, GenerationConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from ...configuration.saved_config import check_saved_config

Json = dict[str, Any]
Model = TypeVar("Model", bound=PreTrainedModel)
CONFIG, SINGLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
GENERATION = "generation_config.json"
# Tokenizers and processors belong to a model whatever its weights are called.
COMPANIONS = tuple(
    "tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json vocab.json vocab.txt merges.txt "
    "tokenizer.model spiece.model sentencepiece.bpe.model source.spm target.spm target_vocab.json spm.model "
    "normalizer.json chat_template.jinja chat_template.json preprocessor_config.json processor_config.json "
    "LICENSE LICENSE.txt NOTICE".split()
)
# Errors of a download that say nothing of how to mend it.
REASONS: dict[type[Exception], str] = {
    HFValidationError: "its form is not user/name",
    GatedRepoError: "accept its terms on the Hub and run `hf auth login`",
    RepositoryNotFoundError: "the Hub has no such repository, or it is private and needs `hf auth login`",
    RevisionNotFoundError: "the Hub has no such revision of it",
    FileNotFoundError: "it is not in the cache and the Hub cannot be reached",
}


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
    except tuple(REASONS) as error:
        why = next(reason for kind, reason in REASONS.items() if isinstance(error, kind))
    raise ValueError(f"{name} is neither a folder here nor a checkpoint that the Hub gives: {why}")


def at_revision(name: str, revision: str | None) -> tuple[str, str | None]:
    """Return a Hub id and its revision, which may stand behind an @ if it is not given apart."""
    own, _, behind = name.partition("@")
    return (own, behind) if behind and revision is None else (name, revision)


def fetched(name: str, revision: str | None) -> Path:
    """Fetch the files that conversion reads of a Hub checkpoint, and return their folder in the cache."""
    wanted = [CONFIG, GENERATION, SINGLE, INDEX, *COMPANIONS]
    folder = Path(snapshot_download(name, revision=revision, allow_patterns=wanted))
    if (folder / INDEX).is_file():  # a branch may have moved, so the rest comes from the same commit
        folder = Path(snapshot_download(name, revision=folder.name, allow_patterns=[*wanted, *weight_files(folder)]))
    return folder


def write_json(path: Path, values: object) -> None:
    """Write JSON, whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(json.dumps(values, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def read_json(path: Path, pairs: Callable[[list[tuple[str, Any]]], Json] = dict) -> Json:
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
    """Return the model type and the class that a config.json names."""
    config = check_saved_config(read_json(folder / CONFIG))
    model_type, classes = config.get("model_type"), config.get("architectures")
    if not (isinstance(model_type, str) and model_type and isinstance(classes, list) and classes):
        raise ValueError(
            f"{folder / CONFIG} has model_type={model_type!r} and architectures={classes!r}; name there the type and, "
            "in a list, the class that the weights were saved from"
        )
    return model_type, str(classes[0])


def is_too_long(name: str) -> bool:
    """Return whether no file can have such a name, for which file systems raise other errors."""
    return len(name.encode("utf-8", "surrogatepass")) > 255


def weight_files(folder: Path) -> dict[str, set[str]]:
    """Map each file to the tensors that the index says it holds, none known for a single file."""
    one, many = (folder / SINGLE).is_file(), (folder / INDEX).is_file()
    if one and many:
        raise ValueError(f"{folder} has both {SINGLE} and {INDEX}; delete the one that is out of date")
    if not (one or many):
        raise ValueError(
            f"{folder} has no {SINGLE} and no {INDEX}; convert its weights to safetensors first, and pickles "
            "(pytorch_model.bin) only with `torch.load(path, weights_only=True)`"
        )
    if one:
        return {SINGLE: set()}
    placed = read_json(folder / INDEX).get("weight_map")
    if not isinstance(placed, dict) or any(Path(str(name)).name != name for name in placed.values()):
        raise ValueError(f"{folder / INDEX} has no weight_map from tensors to files of its folder; download it again")
    files: dict[str, set[str]] = {}
    for tensor, name in placed.items():
        files.setdefault(name, set()).add(tensor)
    return files


def tensor_files(folder: Path) -> dict[str, Path]:
    """Map each tensor of a checkpoint to its file, after checking that every file is whole."""
    files: dict[str, Path] = {}
    for name in weight_files(folder):
        file = folder / name
        try:
            with safe_open(file, framework="pt") as opened:
                held = set(opened.keys())
        except (OSError, SafetensorError) as error:
            raise ValueError(f"{file} is missing, cut short or damaged ({error}); download it again") from None
        if twice := held & files.keys():
            other = files[min(twice)].name
            raise ValueError(f"tensor {min(twice)} is in {name} and in {other} of {folder}; download both again")
        files |= dict.fromkeys(held, file)
    return files


def mapped(file: Path, name: str) -> torch.Tensor:
    """Map a tensor to memory, so that it is read from its file when it is used.

    Each has its mapping: one for the whole file would keep all of it in memory until the last of its tensors
    has been converted.
    """
    with safe_open(file, framework="pt") as opened:
        return opened.get_tensor(name)


def load(
    model_class: type[Model],
    folder: Path,
    within: Callable[[], AbstractContextManager[object]] = nullcontext,
    **options: Any,
) -> tuple[Model, set[str]]:
    """Load a checkpoint with all of its weights, and return the model and the tensors it has no place for.

    transformers fills the model, for it knows the names that older releases wrote. `within` is the context of that.
    """
    with wrong_values(folder):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    weights = {name: mapped(file, name) for name, file in tensor_files(folder).items()}
    check_layers(folder, config, len(weights))
    with quiet(), within(), wrong_values(folder):
        model, unplaced = filled(model_class, config, weights, str(folder), **options)
    if model.can_generate():
        model.generation_config = generation_settings(folder)
    return model, unplaced


# The counts of layers in configs; `num_hidden_layers` has other names in some, which it is an alias of.
LAYERS = ("num_hidden_layers", "encoder_layers", "decoder_layers", "num_decoder_layers")


def check_layers(folder: Path, config: PreTrainedConfig, tensors: int) -> None:
    """Raise ValueError where a config has more layers than there are tensors, before all of them are built."""
    parts = [config, *(getattr(config, name) for name in config.sub_configs)]
    for name, count in ((name, getattr(part, name, 0)) for part in parts for name in LAYERS):
        if isinstance(count, int) and count > tensors:
            raise ValueError(f"{folder / CONFIG} has {name}={count}, and there are {tensors} tensors; mend the config")


def filled(
    model_class: type[Model],
    config: PreTrainedConfig,
    weights: dict[str, torch.Tensor],
    source: str,
    computed: frozenset[str] = frozenset(),
    **options: object,
) -> tuple[Model, set[str]]:
    """Make a model of weights from a source, and return it and the names of weights without a place.

    ValueError for a weight of another shape, and for one that is missing, which transformers would fill with random
    numbers; it computes some.
    """
    # transformers builds on the meta device, and takes these tensors as they are.
    from_weights: Any = model_class.from_pretrained
    loading = {"state_dict": weights, "ignore_mismatched_sizes": True, "output_loading_info": True}
    model, report = from_weights(None, config=config, **loading, **options)
    for name, shape, wanted in sorted(report["mismatched_keys"]):
        raise ValueError(
            f"tensor {name} of {source} has shape {tuple(shape)} where {model_class.__name__} has {tuple(wanted)}; "
            "mend the sizes in its config"
        )
    for name in sorted(report["missing_keys"] - computed):
        raise ValueError(
            f"{source} has no tensor {name}, which {model_class.__name__} needs; download it again, or name in its "
            "config the architecture that was saved"
        )
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
    """Silence transformers' table of weights that did not fit: here it is an error, or said in a sentence."""
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


def check_tensors_placed(source: object, name: str, keys: set[str]) -> None:
    """Raise ValueError where a source of weights holds more than a class has places for."""
    for key in sorted(keys):
        raise ValueError(
            f"{source} has tensor {key}, for which {name} has no place; name the architecture that was saved, or save "
            "the plain model without additions"
        )
