"""What the heads of both stacks read, and what they refuse."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close

import reference
import tiny
from qkv.modeling import QkvEncoderDecoderForQuestionAnswering, QkvEncoderDecoderForSequenceClassification

CLASSES = (QkvEncoderDecoderForSequenceClassification, QkvEncoderDecoderForQuestionAnswering)
TARGET = ("decoder_input_ids", "decoder_attention_mask")


def source() -> dict[str, torch.Tensor]:
    return {name: value for name, value in tiny.same_source_and_target().items() if name not in TARGET}


@pytest.mark.parametrize("kind", tiny.KINDS["encoder_decoder"])
@pytest.mark.parametrize("model_class", CLASSES)
def test_decoder_inputs_are_the_inputs_shifted_right(model_class: Any, kind: str) -> None:
    model, inputs = tiny.precise(model_class, kind), tiny.same_source_and_target()
    ids = inputs["input_ids"]
    assert torch.equal(inputs["decoder_input_ids"], reference.shift_right(ids, tiny.START, tiny.PAD))
    expected, made = model(**inputs), model(**source())
    assert made.keys() == expected.keys()
    assert all(torch.equal(made[name], value) for name, value in expected.items() if "logits" in name)


@pytest.mark.parametrize("kind", tiny.KINDS["encoder_decoder"])
def test_the_classifier_reads_the_state_at_the_last_end(kind: str) -> None:
    model, inputs = tiny.precise(QkvEncoderDecoderForSequenceClassification, kind), tiny.same_source_and_target()
    inputs["input_ids"][0, 2] = tiny.END  # an end inside a text is not its last
    inputs["decoder_input_ids"][0, 3] = tiny.END
    states = model.model(**inputs).last_hidden_state
    ends = [(row == tiny.END).nonzero()[-1, 0] for row in inputs["input_ids"]]
    pooled = torch.stack([states[row, end] for row, end in enumerate(ends)])
    inner = reference.tanh(reference.linear(pooled, model.dense.weight, model.dense.bias))
    expected = reference.linear(inner, model.classifier.weight, model.classifier.bias)
    assert_close(model(**inputs).logits, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("ends", [tiny.END, [4, tiny.END]], ids=str)
def test_a_text_may_have_several_kinds_of_end(ends: Any) -> None:
    model = tiny.precise(QkvEncoderDecoderForSequenceClassification, "bart", eos_token_id=ends)
    assert torch.equal(
        model(**source()).logits, tiny.precise(QkvEncoderDecoderForSequenceClassification, "bart")(**source()).logits
    )


def test_dropout_acts_before_both_maps() -> None:
    model = tiny.precise(QkvEncoderDecoderForSequenceClassification, "bart", classifier_dropout=0.4)
    calls: list[tuple[int, ...]] = []
    model.dropout.register_forward_hook(lambda *given: calls.append(tuple(given[2].shape)))
    model(**source())
    assert model.dropout.p == 0.4 and calls == [(tiny.BATCH, 32)] * 2


@pytest.mark.parametrize("model_class", CLASSES)
def test_no_cache_is_kept_unless_asked(model_class: Any) -> None:
    model = tiny.precise(model_class, "bart")
    assert "past_key_values" not in model(**source()) and "past_key_values" in model(**source(), use_cache=True)


@pytest.mark.parametrize("model_class", CLASSES)
def test_what_cannot_be_read_is_refused(model_class: Any) -> None:
    model, inputs = tiny.precise(model_class, "bart"), source()
    with pytest.raises(ValueError, match="padding in front of a text, where the decoder's start token belongs"):
        model(inputs["input_ids"], inputs["attention_mask"].flip(-1))
    embedded = model.get_input_embeddings()(inputs["input_ids"])
    with pytest.raises(ValueError, match="give decoder_input_ids, decoder_inputs_embeds, or labels"):
        model(inputs_embeds=embedded, attention_mask=inputs["attention_mask"])


def test_a_text_that_does_not_end_is_refused() -> None:
    model, inputs = tiny.precise(QkvEncoderDecoderForSequenceClassification, "bart"), source()
    inputs["input_ids"][1] = 7
    with pytest.raises(ValueError, match=f"row 1 of input_ids has no eos_token_id={tiny.END}; end each text with it"):
        model(**inputs)
    with pytest.raises(ValueError, match="decoder inputs of 4 tokens are not the 7 of the text; leave them out"):
        model(**source(), decoder_input_ids=torch.full((tiny.BATCH, 4), 5))
    with pytest.raises(ValueError, match="has no eos_token_id=None"):
        tiny.precise(QkvEncoderDecoderForSequenceClassification, "bart", eos_token_id=None)(**source())
