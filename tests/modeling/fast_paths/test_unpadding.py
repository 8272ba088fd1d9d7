"""Padding removal: documents in a row, memory of each row, and the batches whose padding stays.

`test_execution.py` compares values and gradients for every position, pattern and padding.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

import tiny
from comparison import assert_alike, decoder, encoder, exact, jittered, learned
from qkv.modeling.fast_paths import unpadding
from qkv.modeling.layer import Layer
from qkv.modeling.modeling_decoder import QkvDecoderModel
from qkv.modeling.modeling_encoder import QkvEncoderModel
from qkv.modeling.modeling_encoder_decoder import QkvEncoderDecoderModel
from sampling import sampled

LENGTH = 9
RIGHT = torch.tensor([[1, 1, 1, 1, 1, 0, 0, 0, 0], [1] * LENGTH, [1, 0, 0, 0, 0, 0, 0, 0, 0]])
PADDING = {
    "right": RIGHT,
    "left": RIGHT.flip(1),
    "inside": torch.tensor([[1, 1, 0, 1, 1, 1, 0, 0, 1], [0, 1, 1, 0, 0, 0, 0, 1, 0], [1] * LENGTH]),
}
SIZES = {"num_attention_heads": 4, "num_key_value_heads": 2, "block_size": 2, "num_hidden_layers": 2}
IDS = torch.randint(11, (3, LENGTH), generator=torch.Generator().manual_seed(0))
STACKS = {"encoder": (encoder, QkvEncoderModel, {}), "decoder": (decoder, QkvDecoderModel, {"use_cache": False})}


def built(stack: str, **fields: Any) -> Any:
    config, model_class, _ = STACKS[stack]
    model = jittered(model_class(config(**SIZES, **fields)))
    model.remove_padding = True
    return model


@contextmanager
def rows_of_layers() -> Iterator[list[int]]:
    """The numbers of rows that layers are given."""
    rows, forward = [], Layer.forward

    def watched(self: Layer, hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        rows.append(hidden.shape[0])
        return forward(self, hidden, *args, **kwargs)

    with mock.patch.object(Layer, "forward", watched):
        yield rows


def assert_equal(model: Any, rows: set[int], **inputs: Any) -> None:
    """Equal values and gradients, with and without removal; `rows` is what layers see without padding."""
    with exact(), rows_of_layers() as seen:
        real = inputs.get("decoder_attention_mask", inputs.get("attention_mask"))
        model.remove_padding = False
        plain = learned(model, real, **inputs)
        assert set(seen) == {3}
        seen.clear()
        model.remove_padding = True
        fast = learned(model, real, **inputs)
    assert set(seen) == rows and len(fast) > 10
    assert_alike(fast, plain)


@pytest.mark.parametrize("position", ["learned", "rope", "none"])
@pytest.mark.parametrize("stack", STACKS)
def test_packed_documents_are_attended_one_by_one(stack: str, position: str) -> None:
    model = built(stack, position=position, pattern=["full", "block_sparse"])
    places = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4, 5], [*range(9)], [4, 5, 0, 1, 0, 0, 1, 2, 3]])
    for mask in ({}, {"attention_mask": RIGHT}):
        assert_equal(model, {1}, input_ids=IDS, position_ids=places, **mask, **STACKS[stack][2])


@pytest.mark.parametrize("position", ["t5", "rope"])
def test_gradient_checkpointing(position: str) -> None:
    model = built("encoder", position=position).train()
    model.activation_checkpointing_enable({"use_reentrant": False})
    assert_equal(model, {1}, input_ids=IDS, attention_mask=RIGHT)


CROSSED = itertools.product(["right", "left", "full"], ["right", "inside", "full"], ["transformer", "t5", "bart"])


@pytest.mark.parametrize(("source", "target", "kind"), sampled(CROSSED, 2))
def test_cross_attention_reads_the_memory_of_its_row(source: str, target: str, kind: str) -> None:
    model = jittered(QkvEncoderDecoderModel(tiny.encoder_decoder(kind))).eval()
    inputs = {"input_ids": IDS, "decoder_input_ids": IDS.flip(0), "use_cache": False}
    masks = {"attention_mask": source, "decoder_attention_mask": target}
    inputs |= {name: PADDING[word] for name, word in masks.items() if word != "full"}
    rows = {1} if source != "full" and target != "full" else {3} if source == target else {1, 3}
    assert_equal(model, rows, **inputs)


def test_padding_comes_back_as_zeros() -> None:
    hidden = built("encoder").eval()(IDS, attention_mask=PADDING["inside"]).last_hidden_state
    assert (hidden[PADDING["inside"] == 0] == 0).all() and (hidden[PADDING["inside"] == 1] != 0).any(-1).all()


STAYS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "hidden states": ("encoder", {}, {"output_hidden_states": True}),
    "attentions": ("encoder", {}, {"output_attentions": True}),
    "no mask": ("encoder", {}, {"attention_mask": None}),
    "no padding": ("encoder", {}, {"attention_mask": torch.ones(3, LENGTH)}),
    "nothing real": ("encoder", {}, {"attention_mask": torch.zeros(3, LENGTH)}),
    "mask of pairs": ("encoder", {}, {"attention_mask": torch.ones(3, 1, LENGTH, LENGTH, dtype=torch.bool)}),
    "bias of other positions": ("encoder", {"position": "alibi"}, {"position_ids": torch.arange(LENGTH)[None] * 2}),
    "cache": ("decoder", {}, {"use_cache": True}),
    "eager": ("decoder", {"attn_implementation": "eager"}, {"use_cache": False}),
}


@pytest.mark.parametrize(("stack", "fields", "given"), STAYS.values(), ids=STAYS)
def test_padding_stays_where_layers_are_recorded_or_nothing_is_gained(
    stack: str, fields: dict[str, Any], given: dict[str, Any]
) -> None:
    with rows_of_layers() as rows:
        outputs = built(stack, **fields).eval()(**{"input_ids": IDS, "attention_mask": RIGHT, **given})
    assert set(rows) == {3} and all(state.shape[0] == 3 for state in outputs.hidden_states or ())


def test_stochastic_depth_drops_branches_row_by_row() -> None:
    model = built("encoder", drop_path_rate=0.5)
    with rows_of_layers() as rows:
        model.train()(IDS, attention_mask=RIGHT)
        model.eval()(IDS, attention_mask=RIGHT)
    assert rows == [3, 3, 1, 1]


@pytest.mark.parametrize(
    ("lengths", "width", "rows"), [([60, 70], 128, 1), ([127, 128], 128, 2), ([3] * 64, 4, 64)], ids=str
)
def test_padding_is_removed_where_that_saves_more_than_it_costs(
    lengths: list[int], width: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpadding, "CALL", 4.5e6)
    config = encoder(hidden_size=252, num_attention_heads=3, head_dim=84, num_hidden_layers=1, position="none")
    mask = (torch.arange(width) < torch.tensor(lengths)[:, None]).long()
    with rows_of_layers() as seen, torch.no_grad():
        QkvEncoderModel(config)(torch.zeros_like(mask), attention_mask=mask)
    assert seen == [rows]
