"""What the heads of both stacks read, and what they refuse; the encoder alone."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModel, AutoModelForTextEncoding, PreTrainedModel

import reference
import tiny
from errors import raises_sentence
from qkv.modeling import (
    QkvEncoderDecoderEncoderModel,
    QkvEncoderDecoderForConditionalGeneration,
    QkvEncoderDecoderForQuestionAnswering,
    QkvEncoderDecoderForSequenceClassification,
    QkvEncoderDecoderModel,
)
from sampling import sampled

pytestmark = pytest.mark.upstream

CLASSES = (QkvEncoderDecoderForSequenceClassification, QkvEncoderDecoderForQuestionAnswering)
TARGET = ("decoder_input_ids", "decoder_attention_mask")


def source() -> dict[str, torch.Tensor]:
    return {name: value for name, value in tiny.same_source_and_target().items() if name not in TARGET}


@pytest.mark.parametrize(("model_class", "kind"), sampled(itertools.product(CLASSES, tiny.KINDS["encoder_decoder"]), 5))
def test_decoder_inputs_are_the_inputs_shifted_right(model_class: Any, kind: str) -> None:
    model, inputs = tiny.precise(model_class, kind), tiny.same_source_and_target()
    ids = inputs["input_ids"]
    assert torch.equal(inputs["decoder_input_ids"], reference.shift_right(ids, tiny.START, tiny.PAD))
    expected, made = model(**inputs), model(**source())
    assert made.keys() == expected.keys()
    assert all(torch.equal(made[name], value) for name, value in expected.items() if "logits" in name)


@pytest.mark.parametrize("kind", sampled(tiny.KINDS["encoder_decoder"], 2))
def test_the_classifier_reads_the_state_at_the_last_end(kind: str) -> None:
    model, inputs = tiny.precise(QkvEncoderDecoderForSequenceClassification, kind), tiny.same_source_and_target()
    inputs["input_ids"][0, 2] = tiny.END  # an end inside a text is not its last
    inputs["decoder_input_ids"][0, 3] = tiny.END
    states = model.model(**inputs).last_hidden_state
    ends = [(row == tiny.END).nonzero()[-1, 0] for row in inputs["input_ids"]]
    pooled = torch.stack([states[row, end] for row, end in enumerate(ends)])
    inner = reference.tanh(reference.linear(pooled, model.dense.weight, model.dense.bias))
    expected = reference.linear(inner, model.classifier.weight, model.classifier.bias)
    seen: list[torch.Size] = []
    model.dropout.register_forward_hook(lambda *given: seen.append(given[2].shape))
    for ends_of_texts in (tiny.END, [4, tiny.END]):
        model.config.eos_token_id = ends_of_texts
        assert_close(model(**inputs).logits, expected, rtol=0, atol=1e-12)
    assert seen == [torch.Size([tiny.BATCH, 32])] * 4  # before both maps, each time


@pytest.mark.parametrize("model_class", CLASSES)
def test_no_cache_is_kept_unless_asked_and_what_cannot_be_read_is_refused(model_class: Any) -> None:
    model, inputs = tiny.precise(model_class, "bart"), source()
    assert "past_key_values" not in model(**inputs) and "past_key_values" in model(**inputs, use_cache=True)
    embedded = model.get_input_embeddings()(inputs["input_ids"])
    with raises_sentence("decoder_input_ids", "decoder_inputs_embeds"):
        model(inputs_embeds=embedded, attention_mask=inputs["attention_mask"])


def test_a_text_that_does_not_end_is_refused() -> None:
    model, inputs = tiny.precise(QkvEncoderDecoderForSequenceClassification, "bart"), source()
    inputs["input_ids"][1] = 7
    with raises_sentence("input_ids", f"eos_token_id={tiny.END}"):
        model(**inputs)
    with raises_sentence("4", "7"):
        model(**source(), decoder_input_ids=torch.full((tiny.BATCH, 4), 5))
    with raises_sentence("eos_token_id=None"):
        tiny.precise(QkvEncoderDecoderForSequenceClassification, "bart", eos_token_id=None)(**source())


# The encoder alone ----------------------------------------------------------------------------------------------------

EVERY_HEAD = (QkvEncoderDecoderModel, QkvEncoderDecoderForConditionalGeneration, *CLASSES)


def whole(model_class: Any = QkvEncoderDecoderForConditionalGeneration, *kind: str, **fields: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    return tiny.jitter(model_class(tiny.encoder_decoder(*kind, **fields))).eval()


def alone(model: PreTrainedModel, folder: Path) -> Any:
    """The encoder that a saved model gives, without a word about it."""
    model.save_pretrained(folder)
    encoder, report = AutoModelForTextEncoding.from_pretrained(folder, output_loading_info=True)
    assert type(encoder) is QkvEncoderDecoderEncoderModel
    heads = ("classifier.", "dense.", "qa_outputs.")
    assert [key for name, keys in report.items() for key in keys if not key.startswith(heads)] == [], report
    return encoder


@torch.no_grad()
def assert_same_states(encoder: Any, model: Any) -> None:
    """The last hidden states are those of the whole model's encoder, bit by bit."""
    inputs, base = tiny.pairs(), getattr(model, "model", model)
    source = {name: value for name, value in inputs.items() if name not in TARGET}
    recorded = {"output_hidden_states": True, "output_attentions": True}
    expected, output = base(**inputs, **recorded), encoder(**source, **recorded)
    assert torch.equal(output.last_hidden_state, expected.encoder_last_hidden_state)
    assert all(map(torch.equal, output.hidden_states, expected.encoder_hidden_states))
    assert all(map(torch.equal, output.attentions, expected.encoder_attentions))
    embedded = encoder.get_input_embeddings()(source.pop("input_ids"))
    assert torch.equal(encoder(**source, inputs_embeds=embedded, **recorded)[0], output.last_hidden_state)


@pytest.mark.parametrize(
    ("model_class", "kind"), sampled(itertools.product(EVERY_HEAD, tiny.KINDS["encoder_decoder"]), 7)
)
def test_the_encoder_of_every_head_is_loaded_alone(model_class: Any, kind: str, tmp_path: Path) -> None:
    model = whole(model_class, kind)
    encoder = alone(model, tmp_path / "whole")
    assert_same_states(encoder, model)
    encoder.save_pretrained(tmp_path / "alone")
    again = alone(encoder, tmp_path / "again")
    automatic = AutoModel.from_pretrained(tmp_path / "alone")
    assert type(automatic) is type(again) and not automatic.config.is_encoder_decoder
    for each in (again, automatic):
        assert_same_states(each, model)
    assert type(AutoModel.from_pretrained(tmp_path / "whole")) is QkvEncoderDecoderModel
    before = model.config.to_dict()
    assert QkvEncoderDecoderEncoderModel(model.config).config.to_dict() != before == model.config.to_dict()
