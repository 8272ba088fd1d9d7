"""Parity is the definition of "is BERT": the same weights give the same numbers here and in transformers."""

import copy
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from comparison import exact
from families import ROWS
from families.base import UNREAD_PARTS, Row
from families.inputs import END, PAD
from qkv.modeling.conversion.convert import (
    chosen,
    from_transformers,
    official_conversions,
    our_conversions,
    to_transformers,
)
from qkv.modeling.conversion.weights import convert
from sampling import sampled

SINGLE, DOUBLE = 1e-5, 1e-10
# One row for each architecture, and those whose files say more than their config does; all of them are a slow test.
SAVED = [
    row
    for row in ROWS
    if (row.name == "" and (row.generates or row.head in ("ForMaskedLM", "ForImageClassification")))
    or row.name in ("untied", "v1.1", "two vocabularies", "no pooler")
]
GENERATED_FROM = ("input_ids", "input_features", "attention_mask", "global_attention_mask")
each_row = pytest.mark.parametrize("row", ROWS, ids=str)
each_fifth = pytest.mark.parametrize("row", sampled(ROWS, 5), ids=str)
each_generator = pytest.mark.parametrize("row", sampled([row for row in ROWS if row.generates], 3), ids=str)
# What a head of theirs gives beside what ours gives.
THEIRS_ALONE = {
    *("cls_logits", "distillation_logits", "past_key_values", "cache", "loss_dict.cardinality_error"),
    *("global_attentions", "encoder_global_attentions"),
}


@contextmanager
def double() -> Iterator[None]:
    """Both sides in double precision, also where transformers insists on single: norms, softmax, angles, losses.

    There a difference of 1e-7 would say no more than that two sums were rounded in another order. With nothing rounded
    to single precision, whatever is left above 1e-10 is a difference of algebra.
    """
    with ExitStack() as stack:
        stack.enter_context(exact())
        stack.enter_context(mock.patch.object(Tensor, "float", Tensor.double))
        stack.enter_context(mock.patch.object(torch, "FloatTensor", torch.DoubleTensor))
        yield


@cache
def pair(row: Row) -> tuple[PreTrainedModel, PreTrainedModel]:
    """The official model and ours."""
    official = row.build()
    return official, from_transformers(official)


@cache
def precise_pair(row: Row) -> tuple[PreTrainedModel, PreTrainedModel]:
    """The same in double precision; built there, for some tables are made when a model is."""
    official = row.build()
    return official, from_transformers(official)


def flattened(output: ModelOutput, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The parts of an output, and those of an output inside it."""
    for name, value in output.items():
        if isinstance(value, dict):
            yield from flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def run(row: Row, model: PreTrainedModel, side: str, *, ours: bool) -> dict[str, Tensor]:
    """Every tensor of an output by its name, at real tokens."""
    inputs = row.inputs(side)
    output = model(**row.placed(inputs, ours=ours), output_hidden_states=True, output_attentions=True)
    values = {name: (value,) if isinstance(value, Tensor) else value for name, value in flattened(output)}
    return {
        f"{name}[{index}]": row.real(name, tensor, inputs, ours=ours)
        for name, tensors in values.items()
        if name not in THEIRS_ALONE
        for index, tensor in enumerate(tensors)
    }


@torch.no_grad()
def distance(row: Row, official: PreTrainedModel, ours: PreTrainedModel, side: str) -> float:
    """The largest difference between two outputs, after checking that ours has every part of theirs."""
    theirs, mine = run(row, official, side, ours=False), run(row, ours, side, ours=True)
    assert theirs.keys() <= mine.keys() and {name: value.shape for name, value in theirs.items()} == {
        name: mine[name].shape for name in theirs
    }
    return max((mine[name] - theirs[name]).abs().max().item() for name in theirs)


def assert_identical(actual: PreTrainedModel, expected: PreTrainedModel) -> None:
    """The same weights and buffers: names, dtypes and bits."""
    mine, theirs = actual.state_dict(), expected.state_dict()
    assert mine.keys() == theirs.keys()
    unread = UNREAD_PARTS.get(type(expected).__name__, " ")
    for name, tensor in theirs.items():
        if name.startswith(unread):
            continue
        assert mine[name].dtype == tensor.dtype and torch.equal(mine[name], tensor), name


@pytest.mark.costly(14)
@each_row
def test_outputs_are_equal(row: Row) -> None:
    assert max(distance(row, *pair(row), side) for side in row.sides) <= SINGLE
    with double():
        assert max(distance(row, *precise_pair(row), side) for side in row.sides) <= DOUBLE


def mistaken(row: Row, ours: PreTrainedModel) -> PreTrainedModel:
    """The same weights under other fields of the config."""
    config = copy.deepcopy(ours.config)
    for name, value in row.wrong.items():
        part, _, field = name.rpartition(".")
        setattr(getattr(config, part, config), field, value)  # a class with the encoder alone has no parts
    wrong = type(ours)._from_config(config, attn_implementation="eager").eval()
    wrong.load_state_dict(ours.state_dict())
    return wrong


@pytest.mark.costly(14)
@each_fifth
def test_a_mistake_shows(row: Row) -> None:
    official, ours = pair(row)
    assert distance(row, official, mistaken(row, ours), row.sides[-1]) > 10 * SINGLE


@contextmanager
def padding_untrained(row: Row, model: PreTrainedModel) -> Iterator[None]:
    """Tables whose row of the padding token learns nothing from being read, on both sides where theirs are such."""
    with ExitStack() as stack:
        for name, table in model.named_modules():
            looked_up = isinstance(table, torch.nn.Embedding) and name.endswith(("embed_tokens", "shared"))
            if row.family.padding_idx and looked_up:
                stack.enter_context(mock.patch.object(table, "padding_idx", PAD))
        yield


@pytest.mark.costly(20)
@each_fifth
def test_gradients_are_equal(row: Row) -> None:
    with double():
        official, ours = precise_pair(row)
        for model, mine in ((official, False), (ours, True)):
            model.zero_grad()
            with padding_untrained(row, model):
                values = run(row, model, "none", ours=mine)
                loss = values["loss[0]"] if "loss[0]" in values else next(iter(values.values())).square().mean()
                loss.backward()
    trained = {name: weight for name, weight in official.state_dict(keep_vars=True).items() if weight.requires_grad}
    theirs = {name: weight.grad for name, weight in trained.items() if weight.grad is not None}
    table = chosen(official_conversions(official), official.config).rows
    theirs = convert(table, theirs, ours.config, reading=True)
    for name, gradient in theirs.items():
        if re.search(row.family.filled, name):
            continue
        assert (ours.get_parameter(name).grad - gradient).abs().max() <= DOUBLE, name


@pytest.mark.costly(30)
@each_fifth
def test_there_and_back_is_the_identity(row: Row) -> None:
    official, ours = pair(row)
    back = to_transformers(ours, row.family.model_type)
    assert_identical(back, official)
    assert type(back) is type(official)
    # Only a Mistral without a window is stored as the Llama that it is.
    stored = chosen(our_conversions(ours), ours.config).theirs
    assert stored == ("LlamaForCausalLM" if row.name == "full" else row.back)
    trained = sum(
        weight.numel()
        for name, weight in official.named_parameters()
        if weight.requires_grad or re.search(row.family.frozen, name)
    )
    bias = official.final_logits_bias.numel() if hasattr(official, "final_logits_bias") else 0
    filled = sum(each.numel() for name, each in ours.named_parameters() if re.search(row.family.filled, name))
    assert ours.num_parameters() - filled == trained + bias


def check_files(row: Row, dtype: torch.dtype, size: str, folder: Path) -> None:
    """Each step reads what the one before it has stored, and every bit of it comes back."""
    official = row.build().to(dtype)
    official.save_pretrained(folder / "official", max_shard_size=size)
    ours = from_transformers(folder / "official")
    ours.save_pretrained(folder / "ours", max_shard_size=size)
    back = to_transformers(type(ours).from_pretrained(folder / "ours", dtype="auto"), row.family.model_type)
    back.save_pretrained(folder / "back", max_shard_size=size)
    options = {"dtype": "auto", **row.options}
    stored = type(official).from_pretrained(folder / "official", **options)
    assert_identical(type(back).from_pretrained(folder / "back", **options), stored)
    # Weights of routers are loaded in single precision where theirs are.
    assert {weight.dtype for name, weight in ours.named_parameters() if not name.endswith("mlp.gate.weight")} == {dtype}
    assert (len(list((folder / "back").glob("*.safetensors"))) > 1) == (size == "8KB")


@pytest.mark.parametrize("row", sampled(SAVED, 9), ids=str)
def test_there_and_back_through_files_is_the_identity(row: Row, tmp_path: Path) -> None:
    check_files(row, torch.bfloat16, "8KB", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("size", ["8KB", "1GB"], ids=["sharded", "one file"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@each_row
def test_there_and_back_through_files_of_any_kind(row: Row, dtype: torch.dtype, size: str, tmp_path: Path) -> None:
    check_files(row, dtype, size, tmp_path)


@pytest.mark.costly(12)
@each_generator
@pytest.mark.parametrize("beams", [1, 3])
def test_generated_tokens_are_equal(row: Row, beams: int) -> None:
    given = row.inputs(row.sides[-1])
    inputs = {name: given[name] for name in GENERATED_FROM if name in given}
    settings = {"max_new_tokens": 8, "do_sample": False, "num_beams": beams}
    wanted = {"return_dict_in_generate": True, "output_scores": True}
    # Copies, for a dynamic rope of theirs remembers the longest text it has seen.
    models = [copy.deepcopy(model) for model in pair(row)]
    for model in models:
        if hasattr(model.config, "output_router_logits"):  # stock has no mask of one token for its losses of routers
            model.config.output_router_logits = False
    theirs, mine = (model.generate(**inputs, **settings, **wanted) for model in models)
    assert torch.equal(mine.sequences, theirs.sequences)
    begin = mine.sequences.shape[1] - len(mine.scores)
    for step, (one, other) in enumerate(zip(mine.scores, theirs.scores, strict=True)):
        # A row that has ended goes on as padding, which each side numbers as it likes; beams put others in its place.
        ended = (mine.sequences[:, begin : begin + step] == END).any(-1) & (beams == 1)
        going = ~ended.repeat_interleave(len(one) // len(ended))  # Whisper's code keeps the best beam alone
        assert torch.allclose(one[going], other[going], rtol=0, atol=SINGLE)
