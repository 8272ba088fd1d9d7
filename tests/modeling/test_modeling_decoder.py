"""Decoders: the loss of the next token, what a text is classified by, and caches."""

import pytest
import torch
from torch.testing import assert_close
from transformers import DynamicCache

import tiny
from qkv.modeling import (
    QkvDecoderForCausalLM,
    QkvDecoderForSequenceClassification,
    QkvDecoderModel,
)

pytestmark = pytest.mark.upstream


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


def test_a_window_forgets_what_it_will_not_see() -> None:
    model = tiny.precise(QkvDecoderModel, "mistral")
    cache = model(torch.arange(4, 24)[None]).past_key_values
    kept = [layer.keys.shape[2] for layer in cache.layers]
    assert kept == [model.config.sliding_window - 1, 20]


def test_logits_can_be_scaled_down() -> None:
    plain, inputs = tiny.precise(QkvDecoderForCausalLM), tiny.text()
    scaled = tiny.precise(QkvDecoderForCausalLM, scale_logits=True)
    assert_close(scaled(**inputs).logits, plain(**inputs).logits / 32**0.5)
