"""What a family alone does: its losses, its caches, its memory, and what it may be given."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close
from transformers import DynamicCache

import reference
import tiny
from errors import raises_sentence
from qkv.modeling import (
    QkvAudioEncoderForCTC,
    QkvDecoderForCausalLM,
    QkvDecoderForSequenceClassification,
    QkvDecoderModel,
    QkvEncoderDecoderForConditionalGeneration,
    QkvEncoderForTokenClassification,
    QkvImageEncoderForMaskedImageModeling,
    QkvImageEncoderModel,
)
from qkv.modeling.heads.loss import ctc_loss

pytestmark = pytest.mark.upstream

# Encoders -------------------------------------------------------------------------------------------------------------


def pictures() -> torch.Tensor:
    return tiny.images()["pixel_values"].double()


def test_masked_patches_of_a_step_count_together() -> None:
    """One patch hidden in the first image and four in the second: the mean over both is no mean of their means."""
    model, pixels = tiny.precise(QkvImageEncoderForMaskedImageModeling, "vit"), pictures()
    masked = (torch.arange(12) < torch.tensor([[1], [4]])).bool()
    whole = model(pixel_values=pixels, bool_masked_pos=masked, num_items_in_batch=5)
    assert_close(whole.loss, model(pixel_values=pixels, bool_masked_pos=masked).loss, rtol=1e-6, atol=0)
    gradients = torch.autograd.grad(whole.loss, list(model.parameters()), allow_unused=True)
    parts = [
        model(pixel_values=pixels[[row]], bool_masked_pos=masked[[row]], num_items_in_batch=torch.tensor(5)).loss
        for row in range(2)
    ]
    assert_close(sum(parts), whole.loss, rtol=0, atol=1e-12)
    assert abs(parts[0] * 5 - parts[1] * 5 / 4) > 1e-3
    for one, other in zip(
        torch.autograd.grad(sum(parts), list(model.parameters()), allow_unused=True), gradients, strict=True
    ):
        assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("learned", [True, False])
def test_a_base_model_may_have_a_mask_token_of_its_own(learned: bool) -> None:
    model = tiny.jitter(QkvImageEncoderModel(tiny.image_encoder(mask_token=learned))).eval()
    inputs = tiny.masked_patches()
    inputs.pop("labels", None)
    assert (model.embed_tokens.mask_token is not None) == learned
    if learned:
        masked, plain = model(**inputs), model(pixel_values=inputs["pixel_values"])
        assert not torch.allclose(masked.last_hidden_state, plain.last_hidden_state)
    else:
        with pytest.raises(ValueError, match="bool_masked_pos"):
            model(**inputs)


BLANK = 1


def ctc_model(**fields: Any) -> QkvAudioEncoderForCTC:
    torch.manual_seed(0)
    return tiny.jitter(QkvAudioEncoderForCTC(tiny.audio_encoder(**fields))).eval()


def test_the_loss_is_that_of_all_alignments() -> None:
    scores = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    words, lengths = [[2, 3], [4, 4], [0]], [4, 3, 2]
    expected = sum(
        reference.ctc_loss(row[:length], said, BLANK) for row, said, length in zip(scores, words, lengths, strict=True)
    )
    labels = torch.tensor([[2, 3], [4, 4], [0, -100]])
    found = ctc_loss(scores, labels, torch.tensor(lengths), tiny.audio_encoder(vocab_size=5, eos_token_id=3))
    assert abs(found - expected / 5) < 1e-12
    mine, theirs = (torch.autograd.grad(loss, scores, retain_graph=True)[0] for loss in (found, expected / 5))
    assert (mine - theirs).abs().max() < 1e-12


def test_without_labels_there_is_no_loss_and_without_words_it_is_that_of_silence() -> None:
    model, sound = ctc_model(), tiny.audio(9)
    assert model(**sound).loss is None
    logits = model(**sound).logits
    silent = model(**sound, labels=torch.full((2, 1), -100)).loss
    blanks = -logits.log_softmax(-1)[..., BLANK]
    assert silent.item() == pytest.approx((blanks[0].sum() + blanks[1, :7].sum()).item(), rel=1e-5)


def test_without_a_mask_every_frame_is_read() -> None:
    model, inputs = ctc_model(), tiny.audio_with_labels()
    expected = model(**inputs | {"attention_mask": torch.ones_like(inputs.pop("attention_mask"))}).loss
    assert torch.equal(model(**inputs).loss, expected)


def test_embeddings_may_be_given_for_sound() -> None:
    model, inputs = ctc_model(), tiny.audio_with_labels()
    embedded, mask, _ = model.model.embed_tokens(inputs["input_features"], inputs["attention_mask"])
    given = model(inputs_embeds=embedded, attention_mask=mask, labels=inputs["labels"])
    expected = model(**inputs)
    assert torch.equal(given.logits, expected.logits) and torch.equal(given.loss, expected.loss)


def test_no_pooler_is_built_that_nothing_reads() -> None:
    """However its config pools, an encoder whose tokens are read has none: all processes expect its gradients."""
    config = tiny.encoder_decoder()
    config.encoder.pooling = "dense"
    models = (QkvEncoderDecoderForConditionalGeneration(config), QkvEncoderForTokenClassification(config.encoder))
    assert not any("pooler" in name for model in models for name in model.state_dict())


# Decoders -------------------------------------------------------------------------------------------------------------


def test_labels_that_are_shifted_already_are_used_as_they_are() -> None:
    model, inputs = tiny.precise(QkvDecoderForCausalLM), tiny.causal_labels()
    expected = model(**inputs).loss
    shifted = torch.nn.functional.pad(inputs.pop("labels")[:, 1:], (0, 1), value=-100)
    assert torch.equal(model(**inputs, shift_labels=shifted).loss, expected)


def test_without_a_mask_padding_is_told_by_its_id() -> None:
    """As in GPT-2's head."""
    model, inputs = tiny.precise(QkvDecoderForSequenceClassification), tiny.text()
    hidden = model.model(inputs["input_ids"]).last_hidden_state
    last = torch.stack((hidden[0, -1], hidden[1, -3]))
    assert_close(model(inputs["input_ids"]).logits, last @ model.score.weight.T)


def test_a_cache_is_kept_only_if_asked_for() -> None:
    model, inputs = tiny.precise(QkvDecoderModel), tiny.text()
    cache = model(**inputs).past_key_values
    assert isinstance(cache, DynamicCache) and cache.get_seq_length() == tiny.LENGTH
    assert model(**inputs, use_cache=False).past_key_values is None
    given = DynamicCache(config=model.config)
    assert model(**inputs, past_key_values=given).past_key_values is given


# Encoder-decoders -----------------------------------------------------------------------------------------------------


def test_labels_become_decoder_inputs_shifted_right() -> None:
    model = tiny.precise(QkvEncoderDecoderForConditionalGeneration, "bart")
    labels = torch.tensor([[5, 6, tiny.END], [7, tiny.END, -100]])
    shifted = model.prepare_decoder_input_ids_from_labels(labels=labels)
    assert shifted.tolist() == [[tiny.START, 5, 6], [tiny.START, 7, tiny.END]]
    longer = torch.tensor([[7, -100, -100]])
    assert model.prepare_decoder_input_ids_from_labels(longer).tolist() == [[tiny.START, 7, tiny.PAD]]
    with raises_sentence("labels", "-100"):
        model.prepare_decoder_input_ids_from_labels(longer.flip(1))


def test_a_source_mask_of_pairs_does_not_reach_cross_attention() -> None:
    model, inputs = tiny.precise(QkvEncoderDecoderForConditionalGeneration, "bart"), tiny.pairs()
    pairs = torch.ones(2, 1, tiny.SOURCE, tiny.SOURCE, dtype=torch.bool)
    with raises_sentence("attention_mask", "encoder_outputs"):
        model(**inputs | {"attention_mask": pairs})
    encoded = model.model.encoder(inputs["input_ids"], pairs)
    plain = model(**inputs | {"attention_mask": None}).logits
    seen = torch.ones(2, 1, tiny.LENGTH, tiny.SOURCE)
    read = model(**inputs | {"attention_mask": seen, "encoder_outputs": encoded, "input_ids": None}).logits
    assert torch.equal(read, plain)


def test_a_text_may_start_with_its_own_last_token() -> None:
    """mBART's texts end with the token of their language, which tells the decoder what to write."""
    model = tiny.precise(QkvEncoderDecoderForConditionalGeneration, "bart", start_with_last_token=True)
    labels = torch.tensor([[5, 6, tiny.END, 9], [7, tiny.END, 8, -100]])
    shifted = model.prepare_decoder_input_ids_from_labels(labels)
    assert shifted.tolist() == [[9, 5, 6, tiny.END], [8, 7, tiny.END, 8]]


def test_two_vocabularies_are_not_resized_as_one() -> None:
    fields = {"encoder": {"vocab_size": 50}, "share_embeddings": False}
    model = tiny.precise(QkvEncoderDecoderForConditionalGeneration, "bart", **fields)
    assert model(**tiny.pairs() | {"input_ids": torch.full((2, 7), 49)}).logits.shape[-1] == tiny.VOCABULARY
    assert model.resize_token_embeddings() is model.get_input_embeddings()
    with raises_sentence("50", "61"):
        model.resize_token_embeddings(70)
