"""Conversion of official checkpoints into qkv models and back, by the same tables."""

import copy
import os
from collections.abc import Callable
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from ...configuration.configuration_base import QkvConfig
from ..base import QkvPreTrainedModel
from .config import Conversion
from .decoder import DECODERS
from .detection import DETECTORS
from .dual_encoder import DUAL_ENCODERS
from .encoder import ENCODERS
from .encoder_decoder import ENCODER_DECODERS
from .encoder_rotary import ROTARY_ENCODERS
from .files import Model, check_tensors_placed, filled, load, located, named, tensor_files
from .image_encoder import IMAGE_ENCODERS
from .long_texts import LONG_TEXTS
from .observation import implied, observe, stored_in_single
from .speech import SPEECH
from .t5 import T5_KIN
from .weights import Weights, alternatives, convert, owned

logger = logging.get_logger(__name__)
MODELING = import_module("..", __package__)  # has all classes of ours once it is imported
TEXTS = (*ENCODERS, *ROTARY_ENCODERS, *DECODERS, *T5_KIN, *ENCODER_DECODERS, *LONG_TEXTS)
ARCHITECTURES = (*TEXTS, *IMAGE_ENCODERS, *DUAL_ENCODERS, *SPEECH, *DETECTORS)
CONVERSIONS = [Conversion(architecture, head) for architecture in ARCHITECTURES for head in architecture.heads]


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
    # Nothing else refers to this model: its tensors are taken over, so that one copy is in memory.
    model = read(open_checkpoint(located(source, revision)), copies=False)
    model.config.name_or_path = os.fspath(source)
    return model


def to_transformers(model: QkvPreTrainedModel) -> PreTrainedModel:
    """Return the stock transformers model with the same head, dtype, labels, generation settings and numbers.

    Where stock transformers has no such architecture, an error names the config field that is in the way.
    """
    return write(model, copies=True)


def read(model: PreTrainedModel, *, copies: bool, wanted: type[PreTrainedModel] | None = None) -> QkvPreTrainedModel:
    """Convert an official model to ours, to the `wanted` class of several; without `copies` it gives up its tensors."""
    conversions = [each for each in official_conversions(model) if wanted is None or each.ours == wanted.__name__]
    conversion = chosen(conversions, model.config)
    config = conversion.read(model.config)
    weights = convert(conversion.rows, model.state_dict(keep_vars=True), config, reading=True)
    observe(config, weights)
    return built(getattr(MODELING, conversion.ours), config, owned(weights, model, copies=copies), model)


def write(model: QkvPreTrainedModel, *, copies: bool) -> PreTrainedModel:
    """Convert our model to the official one; without `copies` it gives up its tensors."""
    conversion = chosen(our_conversions(model), model.config)
    config = conversion.write(model.config)
    weights = scaled(model.state_dict(keep_vars=True), model.config, conversion.read(config))
    weights |= implied(model.config, conversion.rows)
    weights = owned(convert(conversion.rows, weights, model.config, reading=False), model, copies=copies)
    official = getattr(transformers, conversion.theirs)
    computed = frozenset(name for ours, theirs, *_ in conversion.rows if not ours for name in alternatives(theirs))
    options = unpooled(official) if conversion.pooler is False else {}
    return built(official, config, weights, model, computed=computed, **options)


def open_checkpoint(folder: Path, *, dtype: object = "auto", **options: Any) -> PreTrainedModel:
    """Load the model of a folder, official or of qkv, in the class its config names; every tensor must have a place.

    Tensors of another head, such as the pooler beside a published masked language model, are left out.
    """
    model_type, name = named(folder)
    ours = is_ours(folder)
    conversions = [each for each in CONVERSIONS if each.ours == name] if ours else conversions_of(model_type, name)
    if not conversions:
        raise ValueError(f"{name} has no counterpart in stock transformers")
    tensors, model_class = tensor_files(folder), getattr(MODELING if ours else transformers, name)
    if any(each.pooler is False for each in conversions) and not any("pooler" in key.split(".") for key in tensors):
        options |= unpooled(model_class)
    model, unplaced = load(model_class, folder, dtype=dtype, **options)
    spared = {key for key in unplaced if of_another_head(model_type, key)}
    check_tensors_placed(folder, name, unplaced - spared)
    if spared:
        logger.warning(f"{name} of {folder} leaves out {', '.join(sorted(spared))}, which belong to other heads")
    return model


def unpooled(official: type[PreTrainedModel]) -> dict[str, bool]:
    """Return the options that an official base model needs to come without a pooler."""
    return {"add_pooling_layer": False} if "add_pooling_layer" in signature(official).parameters else {}


def is_ours(folder: Path) -> bool:
    """Return whether a folder holds a qkv model."""
    return named(folder)[0].startswith("qkv_")


def rounded_tables(official: PreTrainedModel) -> bool:
    """Return whether an official model has positions in a table in single precision, where ours are computed in use."""
    table = [row for each in official_conversions(official) for row in each.rows]
    return any("sinusoids" in changes for _, _, *changes in table) or stored_in_single(official, table)


def of_another_head(model_type: str, key: str) -> bool:
    """Return whether a tensor belongs to another head of the architecture."""
    rows = (row for each in CONVERSIONS if each.model_type == model_type for row in each.rows)
    names = {name for _, theirs, *_ in rows for name in alternatives(theirs) if "*" not in name}
    return not names.isdisjoint((key, key.removesuffix(".weight"), key.removesuffix(".bias")))


def conversions_of(model_type: str, name: str) -> list[Conversion]:
    """Return the conversions of an official class."""
    of_type = [each for each in CONVERSIONS if each.model_type == model_type]
    if not of_type:
        types = ", ".join(sorted({each.model_type for each in CONVERSIONS}))
        raise ValueError(f"model_type {model_type!r} cannot be converted; qkv converts {types}")
    if conversions := [each for each in of_type if each.theirs == name]:
        return conversions
    known = ", ".join(dict.fromkeys(each.theirs for each in of_type))
    raise ValueError(f"{name} cannot be converted; of {model_type} qkv converts {known}")


def official_conversions(model: PreTrainedModel) -> list[Conversion]:
    """Return the conversions that may be of an official model."""
    conversions = conversions_of(model.config.model_type, known_class(model, {each.theirs for each in CONVERSIONS}))
    return [each for each in conversions if each.pooler in (None, has_pooler(model))]


def our_conversions(model: PreTrainedModel) -> list[Conversion]:
    """Return the conversions that may be of a qkv model."""
    if not (isinstance(model, PreTrainedModel) and model.config.model_type.startswith("qkv_")):
        raise ValueError(f"to_transformers takes a qkv model, got a {type(model).__name__}")
    name = known_class(model, {each.ours for each in CONVERSIONS})
    conversions = [each for each in CONVERSIONS if each.ours == name and each.pooler in (None, has_pooler(model))]
    if not conversions:
        raise ValueError(f"{name} has no counterpart in stock transformers")
    return conversions


def known_class(model: PreTrainedModel, names: set[str]) -> str:
    """Return the class of a model, or its nearest parent in the tables; code from the Hub has other classes."""
    return next((base.__name__ for base in type(model).__mro__ if base.__name__ in names), type(model).__name__)


def has_pooler(model: PreTrainedModel) -> bool:
    """Return whether a base model has a pooler with weights."""
    return any(name.startswith("pooler.") for name, _ in model.named_parameters())


def chosen(conversions: list[Conversion], config: PreTrainedConfig) -> Conversion:
    """Choose the first that loses nothing of the config, ours or theirs; else name the losses of the nearest."""
    ours = isinstance(config, QkvConfig)
    tried = []
    for conversion in conversions:
        refused, losses = attempted(conversion.lost_on_writing if ours else conversion.lost_on_reading, config)
        if not losses:
            return conversion
        tried.append((refused, losses, conversion.theirs))
    _, losses, nearest = min(tried, key=lambda result: (result[0], len(result[1])))
    differences = " and ".join(losses)
    if not ours:
        raise ValueError(
            f"{nearest} cannot be converted: {differences}; delete fields that change no number from its config"
        )
    raise ValueError(
        f"stock transformers has no such model: in its nearest, {nearest}, {differences}; "
        "set fields that you can spare to the stock value first"
    )


def attempted(lost: Callable[[Any], list[str]], config: PreTrainedConfig) -> tuple[bool, list[str]]:
    """Return (whether a config is refused altogether, its losses)."""
    try:
        return False, lost(config)
    except (TypeError, ValueError, StrictDataclassError) as error:
        return True, [str(error)]


def scaled(weights: Weights, config: QkvConfig, again: QkvConfig) -> Weights:
    """Multiply the queries by the factor between this model's scores and its stock architecture's."""
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
    model_class: type[Model],
    config: PreTrainedConfig,
    weights: Weights,
    like: PreTrainedModel,
    **options: Any,
) -> Model:
    """Build a model of these weights, with dtype, mode, device and generation settings of another."""
    # sdpa is everyone's default, so it was no choice where theirs has no code for it (BLOOM); a backbone has its own.
    backend = like.config._attn_implementation if like._supports_sdpa else "sdpa"
    backend = backend if model_class._supports_sdpa else "eager"
    parts = ("", *(part for part in config.sub_configs if part != "backbone_config"))
    options |= {"dtype": like.dtype, "attn_implementation": dict.fromkeys(parts, backend)}
    model, unplaced = filled(model_class, config, weights, type(like).__name__, **options)
    check_tensors_placed(type(like).__name__, model_class.__name__, unplaced)
    # It would keep today's names when it is saved, where every release of transformers reads the published ones.
    del model._weight_conversions
    model.config.name_or_path = like.config.name_or_path
    if model.can_generate() and like.can_generate():
        model.generation_config = copy.deepcopy(like.generation_config)
        if hasattr(model.config, "forced_eos_token_id"):  # BART and Marian keep a second record of it
            model.config.forced_eos_token_id = model.generation_config.forced_eos_token_id
    return model.train(like.training).to(like.device)
