"""What is peculiar to the tables of Longformer, LED and BigBird."""

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import qkv
import tiny
from errors import raises_sentence
from families import variant
from families.inputs import END, PAD, tokens, translation

CLOSE = 1e-5


def pair(model_type: str, head: str, **fields: Any) -> tuple[Any, Any]:
    official = variant(model_type, head, "", **fields).build()
    return official, qkv.from_transformers(official)


def questions(length: int = 9) -> dict[str, Tensor]:
    """A question, an end, two ends before and after the context, as RoBERTa's tokenizer writes pairs."""
    ids = tokens(side="none")["input_ids"].clone()
    ids[:, [2, 3, length - 1]] = END
    return {"input_ids": ids}


@pytest.mark.parametrize("width", [4, 6, 16])
def test_a_window_has_one_side_and_the_token_here(width: int) -> None:
    official, ours = pair("longformer", "Model", attention_window=width)
    assert ours.config.sliding_window == width // 2 + 1
    assert qkv.to_transformers(ours).config.attention_window == official.config.attention_window == [width, width]


def test_windows_of_layers_must_be_alike() -> None:
    official = transformers.LongformerModel(variant("longformer", "Model", "", attention_window=[4, 8]).config())
    with raises_sentence("attention_window=[4, 8]", "sliding_window"):
        qkv.from_transformers(official)
    ours = pair("longformer", "Model")[1]
    ours.config.sliding_window = 2  # which stock code cannot compute
    with pytest.raises(ValueError, match="sliding_window=2 would become 3"):
        qkv.to_transformers(ours)


def test_what_shares_its_projections_is_no_longformer() -> None:
    fields = {"pattern": "sliding", "sliding_window": 3, "norm_first": False, "embedding_norm": True}
    with pytest.raises(ValueError, match="stock transformers has no such model"):
        qkv.to_transformers(qkv.QkvEncoderForMaskedLM(tiny.encoder(**fields)))


@torch.no_grad()
def test_a_text_is_classified_by_its_first_token_unless_told_otherwise() -> None:
    official, ours = pair("longformer", "ForSequenceClassification")
    assert ours.config.num_global_tokens == 1
    given = tokens(side="right")
    assert (official(**given).logits - ours(**given).logits).abs().max() <= CLOSE
    marks = torch.zeros_like(given["input_ids"])
    marks[:, [0, 4]] = 1
    alike = [model(**given, global_attention_mask=marks).logits for model in (official, ours)]
    assert (alike[0] - alike[1]).abs().max() <= CLOSE
    assert (alike[1] - ours(**given).logits).abs().max() > 100 * CLOSE


@torch.no_grad()
def test_questions_and_choices_are_marked_by_the_caller() -> None:
    """With the mask that stock Longformer computes from separators, the numbers are its own."""
    official, ours = pair("longformer", "ForQuestionAnswering", sep_token_id=END)
    given = questions()
    with raises_sentence("global_attention_mask", "num_global_tokens"):
        ours(**given)
    question = (torch.arange(9) < 2).long().expand(3, -1)
    expected, actual = official(**given), ours(**given, global_attention_mask=question)
    assert (expected.start_logits - actual.start_logits).abs().max() <= CLOSE
    official, ours = pair("longformer", "ForMultipleChoice", sep_token_id=END)
    stacked = {name: torch.stack((value, value), 1) for name, value in given.items()}
    context = (torch.arange(9) > 3).long().expand(3, 2, -1)
    expected, actual = official(**stacked).logits, ours(**stacked, global_attention_mask=context).logits
    assert (expected - actual).abs().max() <= CLOSE


@torch.no_grad()
def test_weights_of_global_tokens_are_theirs() -> None:
    official, ours = pair("longformer", "Model")
    given = tokens(side="none")
    marks = torch.zeros_like(given["input_ids"])
    marks[:, [1, 6]] = 1
    theirs = official(**given, global_attention_mask=marks, output_attentions=True).global_attentions
    mine = ours(**given, global_attention_mask=marks, output_attentions=True).attentions
    for one, other in zip(theirs, mine, strict=True):
        assert (one[:, :, :9].transpose(2, 3) - other[:, :, [1, 6]]).abs().max() <= CLOSE


@torch.no_grad()
@pytest.mark.parametrize("removed", [True, False])
def test_a_long_text_is_read_in_chunks(removed: bool) -> None:
    official, ours = pair("longformer", "Model", max_position_embeddings=700, attention_window=16)
    assert ours.config._attn_implementation == "sdpa"  # stock Longformer has no choice
    ours.remove_padding = removed
    mask = (torch.arange(601) < torch.tensor([[601], [350]])).long()
    ids = torch.randint(4, 61, (2, 601)).where(mask.bool(), PAD)
    marks = torch.zeros_like(ids)
    marks[0, [5, 300, 600]] = 1
    given = {"input_ids": ids, "attention_mask": mask, "global_attention_mask": marks}
    difference = official(**given).last_hidden_state - ours(**given).last_hidden_state
    assert difference[mask.bool()].abs().max() <= CLOSE


@torch.no_grad()
def test_led_marks_the_source_while_it_generates() -> None:
    official, ours = pair("led", "ForConditionalGeneration")
    given = {name: value for name, value in translation("right").items() if not name.startswith("decoder")}
    marks = (torch.arange(9) == 3).long().expand(3, -1)
    settings = {"max_new_tokens": 6, "do_sample": False, "num_beams": 2, "global_attention_mask": marks}
    assert torch.equal(official.generate(**given, **settings), ours.generate(**given, **settings))


def test_sparse_attention_of_bigbird_is_refused() -> None:
    official = variant("big_bird", "Model", "", attention_type="block_sparse").build()
    with raises_sentence("attention_type='block_sparse'", "attention_type='original_full'"):
        qkv.from_transformers(official)
    with pytest.raises(ValueError, match="pattern='block_sparse' would become 'full'"):
        qkv.to_transformers(
            qkv.QkvEncoderModel(tiny.encoder(pattern="block_sparse", norm_first=False, embedding_norm=True))
        )


def test_sparse_attention_of_bigbird_counts_the_first_block_several_times() -> None:
    """What the refusal says: in evaluation its random blocks are all the first."""
    layer = transformers.models.big_bird.modeling_big_bird.BigBirdBlockSparseAttention(
        variant("big_bird", "Model", "", attention_type="block_sparse", block_size=2).config()
    ).eval()
    lengths, counts = layer._get_rand_attn_plan(64, 2, 3)
    drawn = layer._bigbird_block_rand_mask_with_head(64, 64, 2, 2, 4, lengths, counts)
    assert all(not blocks.any() and blocks.shape[-1] == 3 for blocks in drawn)


def test_a_pooler_that_nothing_reads_is_left_out() -> None:
    official, ours = pair("big_bird", "ForMaskedLM")
    assert not any("pooler" in name for name in ours.state_dict())
    assert qkv.to_transformers(ours).bert.pooler.weight.shape == official.bert.pooler.weight.shape


def test_bigbirds_projections_without_a_bias() -> None:
    ours = pair("big_bird", "ForMultipleChoice", use_bias=False)[1]
    assert ours.config.attention_bias == ["o_proj"] and ours.config.head_act is None
