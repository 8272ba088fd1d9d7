"""Global tokens with projections of their own give what the paper's formula gives, from the module to the heads."""

import inspect
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import DynamicCache

import qkv
import reference
from comparison import EXACT, assert_same, differentiable_flex, draw, encoder, exact, gate_of, jittered
from errors import raises_sentence
from qkv.modeling.attention import SelfAttention
from qkv.modeling.context import LayerContext
from qkv.modeling.kernels.global_attention import GlobalSelfAttention, GlobalTokens
from qkv.modeling.modeling_encoder import (
    QkvEncoderForMultipleChoice,
    QkvEncoderForQuestionAnswering,
    QkvEncoderForSequenceClassification,
    QkvEncoderModel,
)
from qkv.modeling.position import POSITIONS
from qkv.modeling.position.hooks import PositionState
from sampling import sampled

OWN = {"pattern": "sliding", "sliding_window": 2, "global_projections": True}
SIZES = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, **OWN}
PLACES = torch.tensor([[0, 1, 2, 3, 4, 5], [3, 4, 6, 7, 9, 10]])
# Several in one row at odd places, one of them padding, and none in the other.
CHOSEN = {
    "several": torch.tensor([[0, 1, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]]),
    "one each": torch.tensor([[0, 0, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0]]),
    "all": torch.ones(2, 6, dtype=torch.long),
}
KEEP = torch.tensor([[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 0, 0]])
IDS = torch.randint(11, (3, 12), generator=torch.Generator().manual_seed(0))
RIGHT = (torch.arange(12) < torch.tensor([[12], [5], [9]])).long()
MARKS = torch.zeros(3, 12, dtype=torch.long)
MARKS[0, [3, 7]] = MARKS[2, [0, 8, 11]] = 1
GIVEN = {"input_ids": IDS, "attention_mask": RIGHT, "global_attention_mask": MARKS}


def weights_of(*layers: nn.Linear) -> list[Tensor]:
    return [tensor for layer in layers for tensor in (layer.weight, layer.bias)]


def projections(module: Any) -> list[Tensor]:
    return weights_of(module.q_proj, module.k_proj, module.v_proj)


CASES = itertools.product(CHOSEN, [False, True], ["none", "rope"], [4, 2], ["eager", "sdpa"])


@pytest.mark.parametrize(("marks", "padded", "position", "groups", "backend"), sampled(CASES, 5))
def test_rows_are_those_of_the_paper(marks: str, padded: bool, position: str, groups: int, backend: str) -> None:
    config = encoder(**{**SIZES, "num_key_value_heads": groups}, position=position, attn_implementation=backend)
    config.attention_gate = padded
    module, hidden = jittered(GlobalSelfAttention(config, 0)).eval(), draw(2, 6, 6)
    keep = KEEP if padded else torch.ones_like(KEEP)
    chosen = CHOSEN[marks].bool() & keep.bool()
    near = (torch.arange(6)[:, None] - torch.arange(6)).abs() < 2
    mask = ((near | chosen[:, None] | chosen[:, :, None]) & keep.bool()[:, None])[:, None]
    mask |= ~mask.any(-1, keepdim=True)
    with exact():
        rotation = POSITIONS[position](config).rotation(PLACES, torch.float64)
    tokens = GlobalTokens(chosen, torch.where(keep.bool(), 0, -1), int(chosen.sum(-1).max()))
    output, weights = module(hidden, LayerContext(mask, PositionState(rotation), options={"global_tokens": tokens}))
    frequencies = reference.rope_frequencies(4, 10000.0)
    given = {"visible": lambda b, t, s: bool(near[t, s]), "keep": keep, "gate": gate_of(module)}
    if position == "rope":
        given["rotate"] = lambda heads: reference.rotate_heads(heads, PLACES, frequencies)
    local, own = projections(module), projections(module.global_projections)
    expected, expected_weights = reference.global_attention(
        hidden, local, own, weights_of(module.o_proj), 4, groups, chosen, **given
    )
    real = keep.bool()
    leaves = [hidden, *own, *([] if marks == "all" else local), *module.o_proj.parameters(), *(gate_of(module) or ())]
    assert_same(output[real], expected[real], *leaves)
    if backend == "eager":
        assert weights is not None
        assert_same(weights.transpose(1, 2)[real], expected_weights.transpose(1, 2)[real], hidden)


def test_without_global_tokens_nothing_is_added() -> None:
    module, hidden = jittered(GlobalSelfAttention(encoder(**SIZES), 0)).eval(), draw(2, 6, 6)
    plain = SelfAttention(encoder(**SIZES), 0).double().eval()
    plain.load_state_dict(module.state_dict(), strict=False)
    assert torch.equal(module(hidden)[0], plain(hidden)[0])


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("removed", [True, False])
def test_a_row_alone_gives_what_it_gives_in_a_batch(removed: bool, first: int) -> None:
    model = jittered(QkvEncoderModel(encoder(**SIZES, num_global_tokens=first))).eval()
    model.remove_padding = removed
    with exact():
        together = model(IDS, RIGHT, global_attention_mask=MARKS | (1 - RIGHT)).last_hidden_state
        for row, length in enumerate(RIGHT.sum(-1)):
            one = slice(row, row + 1)
            alone = model(IDS[one, :length], global_attention_mask=MARKS[one, :length]).last_hidden_state
            assert (together[one, :length] - alone).abs().max() <= 100 * EXACT


@pytest.mark.parametrize("own", [True, False])
def test_documents_in_a_row_have_marked_tokens_of_their_own(*, own: bool) -> None:
    model = jittered(QkvEncoderModel(encoder(**{**SIZES, "global_projections": own}))).eval()
    with exact():
        positions = torch.cat((torch.arange(7), torch.arange(5)))[None]
        together = model(IDS[2:], position_ids=positions, global_attention_mask=MARKS[2:]).last_hidden_state
        parts = zip(IDS[2:].split((7, 5), 1), MARKS[2:].split((7, 5), 1), strict=True)
        alone = [model(ids, global_attention_mask=marks).last_hidden_state for ids, marks in parts]
    assert (together - torch.cat(alone, dim=1)).abs().max() <= 100 * EXACT


@pytest.mark.parametrize(("pooling", "removed"), [("first", True), ("dense", False)])
@pytest.mark.parametrize("first", [0, 1])
def test_the_last_layer_may_compute_what_is_read_alone(first: int, removed: bool, pooling: str) -> None:
    config = encoder(**SIZES, num_global_tokens=first, pooling=pooling, num_labels=3)
    model = jittered(QkvEncoderForSequenceClassification(config)).eval()
    model.remove_padding = removed
    with exact():
        read, whole = model(**GIVEN), model(**GIVEN, output_hidden_states=True)
    assert read.hidden_states is None and whole.hidden_states is not None
    assert_same(read.logits, whole.logits, *model.model.layers.parameters(), tolerance=1000 * EXACT)


@pytest.mark.parametrize("way", ["eager", "flex_attention", "compiled"])
def test_backends_and_graphs_give_the_same(way: str) -> None:
    model = jittered(QkvEncoderModel(encoder(**SIZES, num_global_tokens=1))).eval()
    with exact():
        expected = model(**GIVEN).last_hidden_state
        if way == "compiled":  # reads no number of its input
            actual = torch.compile(model, backend="eager")(**GIVEN).last_hidden_state
        else:
            model.set_attn_implementation(way)
            with differentiable_flex():
                actual = model(**GIVEN).last_hidden_state
    assert_same(actual[RIGHT.bool()], expected[RIGHT.bool()], *model.layers.parameters(), tolerance=1000 * EXACT)


def test_marks_of_choices_are_flattened_as_their_tokens() -> None:
    model = jittered(QkvEncoderForMultipleChoice(encoder(**SIZES, pooling="dense"))).eval()
    ids, marks = torch.stack((IDS, IDS.flip(1)), 1), torch.stack((MARKS, MARKS.flip(1)), 1)
    with exact():
        together = model(ids, global_attention_mask=marks).logits
        alone = [model(ids[:, [n]], global_attention_mask=marks[:, [n]]).logits for n in range(2)]
    assert (together - torch.cat(alone, dim=1)).abs().max() <= 100 * EXACT


HEADS = [name for name in qkv.__all__ if name.startswith(("QkvEncoderFor", "QkvEncoderModel"))]
HEADS += [name for name in qkv.__all__ if name.startswith("QkvEncoderDecoder") and not name.endswith("Config")]


@pytest.mark.parametrize("name", HEADS)
def test_trainer_keeps_the_column(name: str) -> None:
    """It drops what `forward` does not name."""
    assert "global_attention_mask" in inspect.signature(getattr(qkv, name).forward).parameters


@pytest.mark.parametrize("fields", [{"pattern": "full"}, {"pattern": ["sliding", "full"]}, {"position": "t5"}], ids=str)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with raises_sentence("global_projections=True", "position='t5'" if "position" in fields else "pattern='full'"):
        encoder(**{**SIZES, **fields})


def test_keys_that_were_projected_before_and_masks_of_pairs_are_refused() -> None:
    model = QkvEncoderModel(encoder(**SIZES))
    with raises_sentence("past_key_values", "global_projections=True"):
        model(IDS, past_key_values=DynamicCache(), global_attention_mask=MARKS)
    with raises_sentence("attention_mask", "(3, 1, 12, 12)"):
        model(IDS, torch.ones(3, 1, 12, 12, dtype=torch.bool))


@pytest.mark.parametrize(
    "head", [QkvEncoderForSequenceClassification, QkvEncoderForQuestionAnswering, QkvEncoderForMultipleChoice]
)
def test_texts_and_questions_need_marks_or_first_tokens(head: type[Any]) -> None:
    ids = IDS[None] if head is QkvEncoderForMultipleChoice else IDS
    with raises_sentence("global_attention_mask", "num_global_tokens"):
        head(encoder(**SIZES))(ids)
    head(encoder(**SIZES, num_global_tokens=1))(ids)


def test_they_are_sharded_as_the_others_are() -> None:
    config = encoder(**SIZES, query_key_norm=True)
    plan, names = config.base_model_tp_plan, dict(QkvEncoderModel(config).named_modules())
    own = {name for name in names if name.startswith("layers.0.self_attn.global_projections.")}
    assert own == {name.replace("*", "0") for name in plan if "global_projections" in name}
    assert "global" not in " ".join(encoder().base_model_tp_plan)
