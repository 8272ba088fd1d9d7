"""Conversion of official checkpoints into qkv models and back, by the same tables."""

import copy
import os
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from ...configuration.configuration_base import QkvConfig
from ..base import QkvPreTrainedModel
from .config import Architecture, Head, lost_on_reading, lost_on_writing, read_config, write_config
from .decoder import DECODERS
from .detection import DETECTORS
from .dual_encoder import DUAL_ENCODERS
from .encoder import ENCODERS
from .encoder_decoder import ENCODER_DECODERS
from .encoder_rotary import ROTARY_ENCODERS
from .esm import PROTEINS
from .files import check_tensors_placed, load, located, named, tensor_files
from .image_encoder import IMAGE_ENCODERS
from .llama import LLAMAS
from .long_texts import LONG_TEXTS
from .observation import implied, observe, stored_in_single
from .speech import SPEECH
from .t5 import T5_KIN
from .weights import Row, Weights, alternatives, convert, owned, placed

logger = logging.get_logger(__name__)
TEXTS = (*ENCODERS, *ROTARY_ENCODERS, *DECODERS, *LLAMAS, *T5_KIN, *ENCODER_DECODERS, *LONG_TEXTS)
ARCHITECTURES = (*TEXTS, *PROTEINS, *IMAGE_ENCODERS, *DUAL_ENCODERS, *SPEECH, *DETECTORS)
Pair = tuple[Architecture, Head]
PAIRS: list[Pair] = [(architecture, head) for architecture in ARCHITECTURES for head in architecture.heads]


def from_transformers(
    source: PreTrainedModel | str | os.PathLike[str], *, revision: str | None = None
) -> QkvPreTrainedModel:
    """Return the qkv model with the head, dtype, labels, generation settings and numbers of an official one.

    `source` is a transformers model, which is left as it is, a local folder, or a Hub id (at `revision`).
    """
    if isinstance(source, PreTrainedModel):
        return read(source, copies=True)
    if not isinstance(source, str | os.PathLike):
        raise ValueError(f"from_transformers takes a model, a folder or a Hub id, got a {type(source).__name__}")
    # What was opened here belongs to nobody else: its tensors are taken over, so that one copy is in memory.
    model = read(open_official(located(source, revision)), copies=False)
    model.config.name_or_path = os.fspath(source)
    return model


def to_transformers(model: QkvPreTrainedModel) -> PreTrainedModel:
    """Return the stock transformers model with the same head, dtype, labels, generation settings and numbers.

    Where stock transformers has no such architecture, an error names the config field that is in the way.
    """
    return write(model, copies=True)


def read(model: PreTrainedModel, *, copies: bool, wanted: type[PreTrainedModel] | None = None) -> QkvPreTrainedModel:
    """Convert an official model to ours, to the `wanted` class of several; without `copies` it gives up its tensors."""
    pairs = [pair for pair in official_pairs(model) if wanted in (None, pair[1].ours)]
    pair = chosen(pairs, model.config, lost_on_reading)
    config = read_config(*pair, model.config)
    weights = convert(rows(*pair), model.state_dict(keep_vars=True), config, reading=True)
    observe(config, weights)
    return built(pair[1].ours, config, owned(weights, model, copies=copies), model)


def write(model: QkvPreTrainedModel, *, copies: bool) -> PreTrainedModel:
    """Convert our model to the official one; without `copies` it gives up its tensors."""
    _, head = pair = chosen(our_pairs(model), model.config, lost_on_writing)
    config = write_config(*pair, model.config)
    weights = scaled(model.state_dict(keep_vars=True), model.config, read_config(*pair, config))
    weights |= implied(model.config, rows(*pair))
    weights = owned(convert(rows(*pair), weights, model.config, reading=False), model, copies=copies)
    official = getattr(transformers, head.theirs)
    computed = {name for ours, theirs, *_ in rows(*pair) if not ours for name in alternatives(theirs)}
    options = {"computed": computed, **(unpooled(official) if head.pooler is False else {})}
    return built(official, config, weights, model, **options)


def open_official(folder: Path, *, dtype: object = "auto", **options: Any) -> PreTrainedModel:
    """Load the official model of a folder in the class its config names; every tensor must have a place.

    Tensors of another head, such as the pooler beside a published masked language model, are left out.
    """
    model_type, name = named(folder)
    pairs = official_heads(model_type, name)
    tensors, official = tensor_files(folder), getattr(transformers, name)
    if any(head.pooler is False for _, head in pairs) and not any("pooler" in key.split(".") for key in tensors):
        options |= unpooled(official)
    model, unplaced = load(official, folder, dtype=dtype, **options)
    spared = {key for key in unplaced if of_another_head(model_type, key)}
    check_tensors_placed(folder, name, unplaced - spared)
    if spared:
        logger.warning(f"{name} of {folder} leaves out {', '.join(sorted(spared))}, which belong to other heads")
    return model


def unpooled(official: type[PreTrainedModel]) -> dict[str, bool]:
    """Return the options that an official base model needs to come without a pooler."""
    return {"add_pooling_layer": False} if "add_pooling_layer" in signature(official).parameters else {}


def open_ours(folder: Path, *, dtype: object = "auto", **options: Any) -> QkvPreTrainedModel:
    """Load the qkv model of a folder, by the same rules."""
    name, classes = named(folder)[1], {head.ours.__name__: head.ours for _, head in PAIRS}
    if name not in classes:
        raise ValueError(f"{name} has no counterpart in stock transformers")
    tensor_files(folder)
    model, unplaced = load(classes[name], folder, dtype=dtype, **options)
    check_tensors_placed(folder, name, unplaced)
    return model


def is_ours(folder: Path) -> bool:
    """Return whether a folder holds a qkv model."""
    return named(folder)[0].startswith("qkv_")


def open_checkpoint(folder: Path, **options: Any) -> PreTrainedModel:
    """Load the model of a folder, whichever of the two it is."""
    return open_ours(folder, **options) if is_ours(folder) else open_official(folder, **options)


def rounded_tables(official: PreTrainedModel) -> bool:
    """Return whether an official model has positions in a table in single precision, where ours are computed in use."""
    table = [row for pair in official_pairs(official) for row in rows(*pair)]
    return any("sinusoids" in changes for _, _, *changes in table) or stored_in_single(official, table)


def of_another_head(model_type: str, key: str) -> bool:
    """Return whether a tensor belongs to another head of the architecture."""
    names = {
        name
        for pair in PAIRS
        if pair[0].model_type == model_type
        for _, theirs, *_ in rows(*pair)
        for name in alternatives(theirs)
        if "*" not in name
    }
    return key in names or key.removesuffix(".weight") in names or key.removesuffix(".bias") in names


def official_heads(model_type: str, name: str) -> list[Pair]:
    """Return the rows of the tables for an official class."""
    types = sorted({architecture.model_type for architecture in ARCHITECTURES})
    if model_type not in types:
        raise ValueError(f"model_type {model_type!r} cannot be converted; qkv converts {', '.join(types)}")
    of_type = [pair for pair in PAIRS if pair[0].model_type == model_type]
    if pairs := [pair for pair in of_type if pair[1].theirs == name]:
        return pairs
    known = ", ".join(dict.fromkeys(head.theirs for _, head in of_type))
    raise ValueError(f"{name} cannot be converted; of {model_type} qkv converts {known}")


def official_pairs(model: PreTrainedModel) -> list[Pair]:
    """Return the rows that may describe an official model."""
    pairs = official_heads(model.config.model_type, known_class(model, {head.theirs for _, head in PAIRS}))
    return [pair for pair in pairs if pair[1].pooler in (None, has_pooler(model))]


def our_pairs(model: PreTrainedModel) -> list[Pair]:
    """Return the rows that may describe a qkv model."""
    if not (isinstance(model, PreTrainedModel) and model.config.model_type.startswith("qkv_")):
        raise ValueError(f"to_transformers takes a qkv model, got a {type(model).__name__}")
    name = known_class(model, {head.ours.__name__ for _, head in PAIRS})
    pairs = [pair for pair in PAIRS if pair[1].ours.__name__ == name and pair[1].pooler in (None, has_pooler(model))]
    if not pairs:
        raise ValueError(f"{name} has no counterpart in stock transformers")
    return pairs


def known_class(model: PreTrainedModel, names: set[str]) -> str:
    """Return the class of a model, or its nearest parent in the tables; code from the Hub has classes of its own."""
    return next((base.__name__ for base in type(model).__mro__ if base.__name__ in names), type(model).__name__)


def has_pooler(model: PreTrainedModel) -> bool:
    """Return whether a base model has a pooler with weights."""
    return any(name.startswith("pooler.") for name, _ in model.named_parameters())


def chosen(pairs: list[Pair], config: PreTrainedConfig, lost: Callable[..., list[str]]) -> Pair:
    """Choose the first row that loses nothing of the config; else an error says what the nearest one would lose."""
    tried = []
    for pair in pairs:
        refused, losses = attempted(lost, *pair, config)
        if not losses:
            return pair
        tried.append((refused, losses, pair))
    _, losses, nearest = min(tried, key=lambda result: (result[0], len(result[1])))
    name, differences = nearest[1].theirs, " and ".join(losses)
    if lost is lost_on_reading:
        raise ValueError(f"{name} cannot be converted: {differences}; delete from its config what changes no number")
    raise ValueError(
        f"stock transformers has no such model: in its nearest, {name}, {differences}; "
        "set what you can spare to the stock value first"
    )


def attempted(
    lost: Callable[..., list[str]], architecture: Architecture, head: Head, config: PreTrainedConfig
) -> tuple[bool, list[str]]:
    """Return (whether a config is refused altogether, what is lost)."""
    try:
        return False, lost(architecture, head, config)
    except (TypeError, ValueError, StrictDataclassError) as error:
        return True, [str(error)]


def rows(architecture: Architecture, head: Head) -> tuple[Row, ...]:
    """Return the rows of all weights: those of the head come first, then those of its base under their prefixes."""
    return (*head.rows, *placed(architecture.rows, *(head.prefixes or architecture.prefixes)))


def scaled(weights: Weights, config: QkvConfig, again: QkvConfig) -> Weights:
    """Multiply the queries by the factor between this model's scores and those of its stock architecture."""
    parts = {part.replace("_config", "_model"): part for part in config.sub_configs} or {"": ""}
    factors = {
        module: multiplier(getattr(config, part, config)) / multiplier(getattr(again, part, again))
        for module, part in parts.items()
    }
    result = dict(weights)
    for name, weight in weights.items():
        factor = next((factors[module] for module in ("", *name.split(".")) if module in factors), 1.0)
        if ".q_proj." in name and factor != 1.0:
            result[name] = weight.detach() * factor
    return result


def multiplier(config: QkvConfig) -> float:
    """Return the factor on the attention scores."""
    return config.attention_multiplier or config.head_dim**-0.5


def built(
    model_class: type[PreTrainedModel],
    config: PreTrainedConfig,
    weights: Weights,
    like: PreTrainedModel,
    **options: Any,
) -> Any:
    """Build a model of these weights, with dtype, mode, device and generation settings of another."""
    computed = options.pop("computed", set())
    # What sdpa is for everyone, some of theirs have no code for (BLOOM), so it was no choice; a backbone has its own.
    backend = like.config._attn_implementation if like._supports_sdpa else "sdpa"
    parts = ("", *(part for part in config.sub_configs if part != "backbone_config"))
    # transformers builds on the meta device, takes these tensors as they are and fills what no checkpoint holds.
    loaded: Any = model_class.from_pretrained(
        None,
        config=config,
        state_dict=weights,
        dtype=like.dtype,
        attn_implementation=dict.fromkeys(parts, backend if model_class._supports_sdpa else "eager"),
        ignore_mismatched_sizes=True,
        output_loading_info=True,
        **options,
    )
    model, report = loaded
    check_weights(type(like).__name__, model_class.__name__, report, computed)
    # It would keep today's names when it is saved, where every release of transformers reads the published ones.
    del model._weight_conversions
    model.config.name_or_path = like.config.name_or_path
    if model.can_generate() and like.can_generate():
        model.generation_config = copy.deepcopy(like.generation_config)
        if hasattr(model.config, "forced_eos_token_id"):  # BART and Marian keep a second record of it
            model.config.forced_eos_token_id = model.generation_config.forced_eos_token_id
    return model.train(like.training).to(like.device)


def check_weights(source: str, target: str, report: dict[str, Any], computed: set[str]) -> None:
    """Raise where the weights of one side are not exactly those the other wants."""
    for name, shape, wanted in sorted(report["mismatched_keys"]):
        raise ValueError(f"{source} gives {name} of shape {tuple(shape)} where {target} has {tuple(wanted)}")
    for name in sorted(report["missing_keys"] - computed):
        raise ValueError(f"{source} has nothing to fill {name} of {target}")
    for name in sorted(report["unexpected_keys"]):
        raise ValueError(f"{source} has {name}, for which {target} has no place")
