"""Read and write the files of checkpoints: no random weight for a missing one, none left out in silence."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, GenerationConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from ...configuration.saved_config import check_saved_config

Json = dict[str, Any]
Model = TypeVar("Model", bound=PreTrainedModel)
# The last is model.safetensors or its shards, and no variant such as model.fp16.safetensors.
CONFIG, INDEX, WEIGHTS = "config.json", "model.safetensors.index.json", "model[.-][0s]*tensors"
GENERATION, OF_CONFIG = "generation_config.json", {"config_file_name": CONFIG, "_from_model_config": True}
# Tokenizers and processors belong to a model whatever its weights are called.
COMPANIONS = tuple(
    "tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json vocab.json vocab.txt merges.txt "
    "tokenizer.model spiece.model sentencepiece.bpe.model source.spm target.spm target_vocab.json spm.model "
    "normalizer.json chat_template.jinja chat_template.json preprocessor_config.json processor_config.json "
    "LICENSE LICENSE.txt NOTICE".split()
)


def located(
    source: str | os.PathLike[str], revision: str | None = None, fetch: Callable[[str, str | None], Path] | None = None
) -> Path:
    """Return the folder of a checkpoint; a Hub id is fetched into the cache, as a rule without pickles and code.

    A revision may stand behind the id, as in `user/name@v1`.
    """
    folder, name = Path(source).expanduser(), os.fspath(source)
    if folder.is_dir():
        return folder
    if isinstance(source, os.PathLike) or name.startswith((".", "~", os.sep)):
        raise ValueError(f"folder {folder} does not exist")
    name, revision = at_revision(name, revision)
    try:
        return (fetch or fetched)(name, revision)
    except (OSError, HFValidationError) as error:
        reason = f"{type(error).__name__}: {str(error).partition('. ')[0]}"
        raise ValueError(f"{name} is neither a folder here nor a checkpoint that the Hub gives ({reason})") from error


def at_revision(name: str, revision: str | None) -> tuple[str, str | None]:
    """Return a Hub id and its revision, which may stand behind an @ if no other is asked for."""
    own, _, behind = name.partition("@")
    return (own, behind) if behind and revision is None else (name, revision)


def fetched(name: str, revision: str | None) -> Path:
    """Fetch the files that conversion reads of a Hub checkpoint, and return their folder in the cache."""
    wanted = [CONFIG, GENERATION, INDEX, WEIGHTS, *COMPANIONS]
    return Path(snapshot_download(name, revision=revision, allow_patterns=wanted))


def read_json(path: Path) -> Json:
    """Read a JSON object of a checkpoint."""
    if not path.is_file():
        raise ValueError(f"{path.parent} has no {path.name}; a checkpoint is a folder with its config and its weights")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
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


def stored_tensors(folder: Path) -> dict[str, Path]:
    """Map each tensor of a checkpoint to its file; ValueError for a damaged file, and for one tensor in two files."""
    files: dict[str, Path] = {}
    for file in sorted(folder.glob(WEIGHTS)):
        try:
            with safe_open(file, framework="pt") as opened:
                held = set(opened.keys())
        except SafetensorError as error:
            raise ValueError(f"{file} is cut short or damaged ({error}); download it again") from None
        for name in held & files.keys():
            other = files[name].name
            raise ValueError(f"{folder} has tensor {name} in {other} and in {file.name}; delete the one out of date")
        files |= dict.fromkeys(held, file)
    return files


def load(
    model_class: type[Model],
    folder: Path,
    within: Callable[[], AbstractContextManager[object]] = nullcontext,
    **options: Any,
) -> tuple[Model, set[str]]:
    """Load a checkpoint with all of its weights, and return the model and the tensors it has no place for.

    Each tensor is mapped to memory by itself: one mapping of a file would keep all of it in memory until the last of
    its tensors has been converted. `within` is the context in which the model is filled.
    """
    weights: dict[str, torch.Tensor] = {}
    for name, file in stored_tensors(folder).items():
        with safe_open(file, framework="pt") as opened:
            weights[name] = opened.get_tensor(name)
    if not weights:
        raise ValueError(f"{folder} has no model.safetensors and no shards of it; convert its weights first")
    with unreadable(folder):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        check_sizes(model_class, folder, config, weights)
        with quiet(), within():
            model, unplaced = filled(model_class, str(folder), config, weights, **options)
        if model.can_generate():  # before there was a file for these settings, the config held them
            old: Any = {} if (folder / GENERATION).is_file() else OF_CONFIG
            model.generation_config = GenerationConfig.from_pretrained(folder, **old)
    return model, unplaced


# The counts of layers in configs; `num_hidden_layers` has other names in some, which it is an alias of.
LAYERS = ("num_hidden_layers", "encoder_layers", "decoder_layers", "num_decoder_layers")


def check_sizes(
    model_class: type[PreTrainedModel], folder: Path, config: PreTrainedConfig, weights: dict[str, torch.Tensor]
) -> None:
    """Raise ValueError where a config describes far more than the weights of its folder, before that takes memory."""
    parts = [config, *(getattr(config, name) for name in config.sub_configs)]
    for name, count in ((name, getattr(part, name, 0)) for part in parts for name in LAYERS):
        if isinstance(count, int) and count > len(weights):
            raise ValueError(f"{folder / CONFIG} has {name}={count}, and {len(weights)} tensors; mend the config")
    with torch.device("meta"):
        needed = sum(parameter.numel() for parameter in model_class(config).parameters())
    held = sum(tensor.nbytes for tensor in weights.values())
    if needed > 2 * held + 2**20:  # a byte holds two numbers at most; less is told apart tensor by tensor
        raise ValueError(
            f"{folder / CONFIG} describes {needed:,} parameters, and its files hold {held:,} bytes; mend it"
        )


def filled(
    model_class: type[Model],
    source: str,
    config: PreTrainedConfig,
    weights: dict[str, torch.Tensor],
    computed: frozenset[str] = frozenset(),
    **options: object,
) -> tuple[Model, set[str]]:
    """Make a model of weights from a source, and return it and the names of weights without a place.

    ValueError for a weight of another shape, and for one that is missing, which transformers would fill with random
    numbers; it computes some. An official base model without the weights of its pooler has none.
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
    missing, official = report["missing_keys"] - computed, not config.model_type.startswith("qkv_")
    pooler = {name for name in model.state_dict() if official and name.startswith("pooler.")}
    if pooler and missing == pooler:
        model.pooler, missing = None, set()
    for name in sorted(missing):
        raise ValueError(
            f"{source} has no tensor {name}, which {model_class.__name__} needs; download it again, or name in its "
            "config the architecture that was saved"
        )
    return model, set(report["unexpected_keys"])


@contextmanager
def unreadable(folder: Path) -> Iterator[None]:
    """Raise ValueError in one sentence where a file of a checkpoint makes libraries raise anything else."""
    try:
        yield
    except (ValueError, OSError, ImportError):
        raise
    except Exception as error:
        cause = error.__cause__ or error
        reason = f"{type(cause).__name__}: {' '.join(str(cause).split())}"
        raise ValueError(
            f"{folder} has a value or file that transformers cannot use ({reason}); mend {CONFIG}, or download it again"
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


def check_tensors_placed(source: object, name: str, keys: set[str]) -> None:
    """Raise ValueError where a source of weights holds more than a class has places for."""
    for key in sorted(keys):
        raise ValueError(
            f"{source} has tensor {key}, for which {name} has no place; name the architecture that was saved, or save "
            "the plain model without additions"
        )
