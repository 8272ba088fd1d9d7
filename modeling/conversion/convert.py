"""Conversion of official checkpoints into qkv models and back, by the same tables.

Both compute the same in evaluation; docs/migration.md lists where stock drops out other values in training.
"""

import copy
import os
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from ...configuration.configuration_base import QkvConfig
from ..base import QkvPreTrainedModel
from ..position.relative import RotaryPosition
from .config import Conversion, flat
from .decoder import GROUPS as DECODERS
from .decoder_experts import GROUPS as EXPERTS
from .encoder import GROUPS as ENCODERS
from .encoder_decoder import GROUPS as ENCODER_DECODERS
from .esmfold import CONVERSIONS_OF_FOLDING
from .files import Model, check_tensors_placed, filled, load, located, named
from .image_models import GROUPS as IMAGE_MODELS
from .weights import Weights, convert, owned

logger = logging.get_logger(__name__)
MODELING = sys.modules[__package__.rpartition(".")[0]]  # has all classes of ours once it is imported
# Of architectures that are one model, the older stands before the younger.
TEXTS = (*ENCODERS.values(), *DECODERS.values(), *EXPERTS.values(), ENCODER_DECODERS["t5"], ENCODER_DECODERS["bart"])
GROUPS = (*TEXTS, *IMAGE_MODELS.values(), ENCODER_DECODERS["speech"])
ARCHITECTURES = [architecture for group in GROUPS for architecture in group.values()]
CONVERSIONS = [Conversion(architecture, head) for architecture in ARCHITECTURES for head in architecture.heads]
CONVERSIONS += CONVERSIONS_OF_FOLDING
# Weights tell whether two of ours are one: the config of a checkpoint may be wrong.
SHARED = (
    ("tie_word_embeddings", "lm_head.weight", "model.embed_tokens.weight"),
    ("tie_word_embeddings", "lm_head.weight", "model.decoder.embed_tokens.weight"),
    ("tie_word_embeddings", "lm_head.decoder.weight", "model.embed_tokens.weight"),
    ("share_embeddings", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
    ("share_embeddings", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"),
)
# The rotary frequencies that ESM stores, as a tensor of ours would be called; ours follow from the config.
FREQUENCIES = "position.inv_freq"


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


def to_transformers(model: QkvPreTrainedModel, model_type: str | None = None) -> PreTrainedModel:
    """Return the stock transformers model with the same head, dtype, labels, generation settings and numbers.

    Of several architectures that are one model, such as `roberta` and `camembert`, it is the oldest, or the one of that
    `model_type`. Where stock transformers has no such architecture, an error names the config field that is in the way.
    """
    return write(model, copies=True, model_type=model_type)


def read(model: PreTrainedModel, *, copies: bool, wanted: type[PreTrainedModel] | None = None) -> QkvPreTrainedModel:
    """Convert an official model to ours, to the `wanted` class of several; without `copies` it gives up its tensors."""
    conversions = [each for each in official_conversions(model) if wanted is None or each.ours == wanted.__name__]
    conversion = chosen(conversions, model.config)
    config = conversion.read(model.config)
    weights = convert(conversion.rows, model.state_dict(keep_vars=True), config, reading=True)
    observe(config, weights)
    if conversion.head.words.get("pooling") == "dense" and conversion.head.ours == "Model":
        config.pooling = "dense" if "pooler.dense.weight" in weights else "first"
    return built(getattr(MODELING, conversion.ours), config, owned(weights, model, copies=copies), model)


def write(model: QkvPreTrainedModel, *, copies: bool, model_type: str | None = None) -> PreTrainedModel:
    """Convert our model to the official one of a type, or the oldest; without `copies` it gives up its tensors."""
    conversion = chosen(our_conversions(model, model_type), model.config)
    config = conversion.write(model.config)
    weights = model.state_dict(keep_vars=True)
    rotated: Any = getattr(model.config, "language_model", None) or model.config
    if getattr(rotated, "position", None) == "rope":
        stored = [name for row in conversion.rows for name in row.ours if name.endswith(FREQUENCIES)]
        weights |= {name: frequencies(rotated) for name in stored}
    weights = owned(convert(conversion.rows, weights, model.config, reading=False), model, copies=copies)
    computed = frozenset(name for row in conversion.rows if not row.ours for name in row.theirs)
    return built(getattr(transformers, conversion.theirs), config, weights, model, computed=computed)


def open_checkpoint(folder: Path, *, dtype: object = "auto", **options: Any) -> PreTrainedModel:
    """Load the model of a folder, official or of qkv, in the class its config names; every tensor must have a place.

    Tensors of another head, such as the pooler beside a published masked language model, are left out.
    """
    model_type, name = named(folder)
    ours = is_ours(folder)
    if not ([each for each in CONVERSIONS if each.ours == name] if ours else conversions_of(model_type, name)):
        raise ValueError(f"{name} has no counterpart in stock transformers")
    model, unplaced = load(getattr(MODELING if ours else transformers, name), folder, dtype=dtype, **options)
    spared = {key for key in unplaced if of_another_head(model_type, key)}
    check_tensors_placed(folder, name, unplaced - spared)
    if spared:
        logger.warning(f"{name} of {folder} leaves out {', '.join(sorted(spared))}, which belong to other heads")
    return model


def is_ours(folder: Path) -> bool:
    """Return whether a folder holds a qkv model."""
    return named(folder)[0].startswith("qkv_")


def of_another_head(model_type: str, key: str) -> bool:
    """Return whether a tensor belongs to another head of the architecture."""
    rows = (row for each in CONVERSIONS if each.model_type == model_type for row in each.rows)
    names = {name for row in rows for name in row.theirs if "*" not in name}
    return not names.isdisjoint((key, key.removesuffix(".weight"), key.removesuffix(".bias")))


def conversions_of(model_type: str, name: str) -> list[Conversion]:
    """Return the conversions of an official class."""
    of_type = [each for each in CONVERSIONS if each.model_type == model_type]
    if not of_type:
        raise ValueError(f"model_type {model_type!r} cannot be converted; {nearest(model_type, CONVERSIONS)}")
    if conversions := [each for each in of_type if each.theirs == name]:
        return conversions
    known = ", ".join(dict.fromkeys(each.theirs for each in of_type))
    raise ValueError(f"{name} cannot be converted; of {model_type} qkv converts {known}")


def nearest(model_type: str | None, conversions: list[Conversion]) -> str:
    """Name the model types of conversions that are most like one."""
    types = sorted({each.model_type for each in conversions})
    return f"the nearest of {len(types)} are {', '.join(get_close_matches(str(model_type), types, n=5, cutoff=0))}"


def official_conversions(model: PreTrainedModel) -> list[Conversion]:
    """Return the conversions that may be of an official model."""
    model_type = model.config.model_type
    names = {each.theirs for each in CONVERSIONS if each.model_type == model_type}
    return conversions_of(model_type, known_class(model, names))


def our_conversions(model: PreTrainedModel, model_type: str | None = None) -> list[Conversion]:
    """Return the conversions that may be of a qkv model, to one official architecture or to any."""
    if not (isinstance(model, PreTrainedModel) and model.config.model_type.startswith("qkv_")):
        raise ValueError(f"to_transformers takes a qkv model, got a {type(model).__name__}")
    name = known_class(model, {each.ours for each in CONVERSIONS})
    conversions = [each for each in CONVERSIONS if each.ours == name]
    if not conversions:
        raise ValueError(f"{name} has no counterpart in stock transformers")
    if of_type := [each for each in conversions if model_type in (None, each.model_type)]:
        return of_type
    raise ValueError(f"{name} has no counterpart of model_type={model_type!r}; {nearest(model_type, conversions)}")


def known_class(model: PreTrainedModel, names: set[str]) -> str:
    """Return the class of a model, or its nearest parent in the tables; code from the Hub has other classes."""
    return next((base.__name__ for base in type(model).__mro__ if base.__name__ in names), type(model).__name__)


def chosen(conversions: list[Conversion], config: PreTrainedConfig) -> Conversion:
    """Choose the first that loses nothing of the config, ours or theirs; else name the losses of the nearest."""
    ours = isinstance(config, QkvConfig)
    values, tried = flat(config) if ours else {}, []
    # Those that change a word come last: to try each takes milliseconds.
    for conversion in sorted(conversions, key=lambda each: each.contradicts(values)):
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
    except (LookupError, TypeError, ValueError, StrictDataclassError) as error:
        return True, [str(error)]


def observe(config: QkvConfig, weights: Weights) -> None:
    """Set fields that only the weights tell: tied embeddings, the bias of the head, the precision of frequencies."""
    for field, one, other in SHARED:
        if one in weights and other in weights:
            setattr(config, field, weights[one] is weights[other])
    if "lm_head.weight" in weights:
        config.get_text_config(decoder=True).lm_head_bias = "lm_head.bias" in weights
    for name in [name for name in weights if name.endswith(FREQUENCIES)]:
        rotated: Any = getattr(config, "language_model", None) or config
        observe_rounding(rotated, weights.pop(name))
        if rotated is not config:
            config.language_model_config["rope_parameters"] = rotated.rope_parameters


def observe_rounding(config: Any, stored: Tensor) -> None:
    """Set the dtype to which stored frequencies are rounded, as ESM-2 stores them in half precision."""
    exact = frequencies(config).to(stored.device)
    for name in ("float32", "float16", "bfloat16"):
        if torch.equal(exact.to(getattr(torch, name)).to(exact), stored.to(exact)):
            config.rope_parameters |= {} if name == "float32" else {"inv_freq_dtype": name}
            return
    theta = config.rope_parameters["rope_theta"]
    raise ValueError(f"inv_freq holds no frequencies of rope_theta={theta}, of any rounding; mend the config's base")


def frequencies(config: Any) -> Tensor:
    """Return the rotary frequencies that follow from a config (K / 2,)."""
    return RotaryPosition(config).frequencies(torch.zeros(1))[0]


def built(
    model_class: type[Model],
    config: PreTrainedConfig,
    weights: Weights,
    like: PreTrainedModel,
    computed: frozenset[str] = frozenset(),
) -> Model:
    """Build a model of these weights, with dtype, mode, device and generation settings of another."""
    # sdpa is everyone's default, so it was no choice where theirs has no code for it (BLOOM); a backbone has its own.
    backend = like.config._attn_implementation if like._supports_sdpa else "sdpa"
    backend = backend if model_class._supports_sdpa else "eager"
    backends = dict.fromkeys(("", *(part for part in config.sub_configs if part != "backbone_config")), backend)
    options = {"dtype": like.dtype, "attn_implementation": backends}
    if like.config._experts_implementation == "eager":  # products of groups are the default
        options["experts_implementation"] = "eager"
    dtypes = {name: weight.dtype for name, weight in weights.items()}
    model, unplaced = filled(model_class, type(like).__name__, config, weights, computed, **options)
    check_tensors_placed(type(like).__name__, model_class.__name__, unplaced)
    for name, parameter in model.named_parameters():
        parameter.data = parameter.data.to(dtypes.get(name, parameter.dtype))  # a model in memory may be all half
    # It would keep today's names when it is saved, where every release of transformers reads the published ones.
    del model._weight_conversions
    model.config.name_or_path = like.config.name_or_path
    if model.can_generate() and like.can_generate():
        model.generation_config = copy.deepcopy(like.generation_config)
        if hasattr(model.config, "forced_eos_token_id"):  # BART and Marian keep a second record of it
            model.config.forced_eos_token_id = model.generation_config.forced_eos_token_id
    return model.train(like.training).to(like.device)
