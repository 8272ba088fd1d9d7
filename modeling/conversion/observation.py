"""Fields of a config that only weights tell, and weights that only a config tells."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ...configuration.configuration_base import QkvConfig
from ..position.relative import RotaryPosition
from .weights import Row, Weights, alternatives

# Weights tell whether two of ours are one: the config of a checkpoint may be wrong.
SHARED = {
    "tie_word_embeddings": (
        ("lm_head.weight", "model.embed_tokens.weight"),
        ("lm_head.weight", "model.decoder.embed_tokens.weight"),
        ("lm_head.decoder.weight", "model.embed_tokens.weight"),
    ),
    "share_embeddings": (
        ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
        ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"),
    ),
}
# The rotary frequencies that ESM stores, as a tensor of ours would be called; ours follow from the config.
FREQUENCIES = "position.inv_freq"


def observe(config: QkvConfig, weights: Weights) -> None:
    """Set fields that only the weights tell: tied embeddings, the bias of the head, the precision of frequencies."""
    for field, pairs in SHARED.items():
        for one, other in pairs:
            if one in weights and other in weights:
                setattr(config, field, weights[one] is weights[other])
    if "lm_head.weight" in weights:
        config.get_text_config(decoder=True).lm_head_bias = "lm_head.bias" in weights
    for name in [name for name in weights if name.endswith(FREQUENCIES)]:
        observe_rounding(config, weights.pop(name))


def observe_rounding(config: QkvConfig, stored: Tensor) -> None:
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


def implied(config: QkvConfig, table: Iterable[Row]) -> Weights:
    """Return the weights of a table of rows that ours has in its config alone."""
    names = [ours for ours, _ in frequency_names(table)]
    return {name: frequencies(config) for name in names if config.position == "rope"}


def stored_in_single(official: PreTrainedModel, table: Iterable[Row]) -> bool:
    """Return whether an official model stores frequencies in single precision that were not rounded to half."""
    buffers = dict(official.named_buffers())
    stored = [buffers[theirs] for _, theirs in frequency_names(table) if theirs in buffers]
    return any(not torch.equal(each, each.half().to(each)) for each in stored)


def frequency_names(table: Iterable[Row]) -> list[tuple[str, str]]:
    """Return the names of frequencies in a table of rows, ours and theirs."""
    pairs = [zip(alternatives(ours), alternatives(theirs), strict=False) for ours, theirs, *_ in table]
    return [names for row in pairs for names in row if names[0].endswith(FREQUENCIES)]
