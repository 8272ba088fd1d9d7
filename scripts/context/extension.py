"""Extend a model to longer texts: rotary frequencies are scaled, a learned table is repeated; no weight is lost."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
from torch import nn
from transformers import PreTrainedModel

from qkv.configuration.configuration_pattern import CACHE_LAYER_TYPES
from qkv.configuration.configuration_stack import StackConfig
from qkv.modeling.stack import Stack

Method = Literal["yarn", "linear", "dynamic", "copy"]
ROPE_METHODS = ("yarn", "linear", "dynamic")
# Methods by what a model counts positions with; the first is the default.
METHODS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("learned", "learned_and_t5"), ("copy",)),
    **dict.fromkeys(("rope", "xpos"), ROPE_METHODS),
}


def extend(model: PreTrainedModel, max_position_embeddings: int, method: Method | None = None) -> PreTrainedModel:
    """Extend a model in place to texts of `max_position_embeddings` tokens, and return it.

    `yarn`, `linear` and `dynamic` scale the rotary frequencies as transformers does, so that the model goes back to its
    stock class with them; `copy` repeats a learned table as Longformer was made from RoBERTa, and texts that fitted
    before give the numbers that they gave. None is the first that fits: `copy` for tables, `yarn` for rotations. Each
    part of a model that counts the positions of tokens is extended. Train it on long texts afterwards.

    ValueError where the length is no longer than before, or the method does not fit the position encoding.

    Source: Peng et al. 2024, YaRN, https://arxiv.org/abs/2309.00071; Chen et al. 2023, §2.3, linear,
        https://arxiv.org/abs/2306.15595; Beltagy et al. 2020, Longformer, §5, copy, https://arxiv.org/abs/2004.05150
    """
    stacks = extensible(model)
    scalings = [check_scaling(stack.config, max_position_embeddings, method) for stack in stacks]
    for stack, scaling in zip(stacks, scalings, strict=True):
        if scaling == "copy":
            repeat_table(stack, max_position_embeddings)
        else:
            scale_rope(stack, max_position_embeddings, scaling)
        stack.config.validate()
    return model


def extensible(model: PreTrainedModel) -> list[Stack]:
    """Return the stacks of a model that count the positions of tokens; tables of images are resampled instead."""
    stacks = [module for module in model.modules() if isinstance(module, Stack) and not hasattr(module.config, "grid")]
    if not stacks:
        raise ValueError(f"{type(model).__name__} has no stack that reads tokens; only those of qkv can be extended")
    return stacks


def check_scaling(config: StackConfig, length: int, method: str | None) -> str:
    """Return the method that extends a stack; ValueError where none or another one does."""
    fitting = METHODS.get(config.position_word)
    if fitting is None:
        raise ValueError(
            f"position={config.position!r} reads texts of any length, or has no table that can be repeated; extend "
            f"models of {', '.join(METHODS)}"
        )
    if method is not None and method not in fitting:
        known = "" if method in get_args(Method) else "no method of qkv.extend and "
        raise ValueError(f"method={method!r} is {known}not for position={config.position!r}; use {', '.join(fitting)}")
    if length <= config.max_position_embeddings:
        raise ValueError(
            f"max_position_embeddings={length} is no longer than the {config.max_position_embeddings} tokens of the "
            "model; give a greater number"
        )
    chosen = method or fitting[0]
    for given in far_rotations(config).values() if chosen in ROPE_METHODS else ():
        check_trained(given, chosen)
    return chosen


def check_trained(given: Mapping[str, Any], method: str) -> None:
    """Raise ValueError where rotary frequencies are scaled already in another way."""
    kind = given.get("rope_type", "default")
    if kind not in ("default", method):
        raise ValueError(
            f"rope_parameters have rope_type={kind!r}, with which the model was trained or extended; "
            + (f"use method={kind!r}" if kind in ROPE_METHODS else "its frequencies cannot be scaled again")
        )


def repeat_table(stack: Stack, length: int) -> None:
    """Repeat the table of positions until it is long enough; rows in front that no token has stay once."""
    table: Any = stack.position.table
    first = stack.config.position_offset
    weight = table.weight.detach()
    if weight.is_meta:
        raise ValueError("the table of positions is offloaded, and cannot be repeated; load the model into memory")
    rows = weight[first:]
    repeated = rows.repeat(-(-length // len(rows)), 1)[:length]
    table.weight = nn.Parameter(torch.cat((weight[:first], repeated)), requires_grad=table.weight.requires_grad)
    table.num_embeddings = len(table.weight)
    stack.config.max_position_embeddings = length


def far_rotations(config: StackConfig) -> dict[str, dict[str, Any]]:
    """Return the rotary parameters of each pattern that sees far, or under "" those of all layers."""
    given = dict(config.rope_parameters or {})
    if not config.rope_by_pattern:
        return {"": given}
    words = [word for word in CACHE_LAYER_TYPES if word in given]
    return {word: given[word] for word in words if word != "sliding" or len(words) == 1}


def scale_rope(stack: Stack, length: int, method: str) -> None:
    """Scale the rotary frequencies, but not of windows, which see near tokens alone."""
    config, trained = stack.config, stack.config.max_position_embeddings
    scaled = {word: scaled_rope(each, length, trained, method) for word, each in far_rotations(config).items()}
    config.rope_parameters = scaled.get("") or {**(config.rope_parameters or {}), **scaled}
    # In transformers the dynamic scaling takes the trained length from here.
    if method != "dynamic":
        config.max_position_embeddings = length


def scaled_rope(given: Mapping[str, Any], length: int, trained: int, method: str) -> dict[str, Any]:
    """Return rotary parameters for a length; a scaled model is scaled again from its trained length."""
    if given.get("rope_type") in ("yarn", "linear"):
        trained = given.get("original_max_position_embeddings") or round(trained / given["factor"])
    kept = {name: value for name, value in given.items() if name not in ("rope_type", "factor", "attention_factor")}
    scaled = {**kept, "rope_type": method, "factor": length / trained}
    return {**scaled, "original_max_position_embeddings": trained} if method == "yarn" else scaled
