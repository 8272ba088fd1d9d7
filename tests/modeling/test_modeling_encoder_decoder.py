"""Encoder-decoders: what happens to labels, memory and vocabularies."""

import pytest
import torch
from torch.testing import assert_close

import tiny
from errors import raises_sentence
from qkv.modeling import QkvEncoderDecoderForConditionalGeneration

pytestmark = pytest.mark.upstream


def test_labels_become_decoder_inputs_shifted_right() -> None:
    model = tiny.precise(QkvEncoderDecoderForConditionalGeneration, "bart")
    labels = torch.tensor([[5, 6, tiny.END], [7, tiny.END, -100]])
    shifted = model.prepare_decoder_input_ids_from_labels(labels=labels)
    assert shifted.tolist() == [[tiny.START, 5, 6], [tiny.START, 7, tiny.END]]
    longer = torch.tensor([[7, -100, -100]])
    assert model.prepare_decoder_input_ids_from_labels(longer).tolist() == [[tiny.START, 7, tiny.PAD]]


def test_a_text_may_start_with_its_own_last_token() -> None:
    """mBART's texts end with the token of their language, which tells the decoder what to write."""
    model = tiny.precise(QkvEncoderDecoderForConditionalGeneration, "bart", start_with_last_token=True)
    labels = torch.tensor([[5, 6, tiny.END, 9], [7, tiny.END, 8, -100]])
    shifted = model.prepare_decoder_input_ids_from_labels(labels)
    assert shifted.tolist() == [[9, 5, 6, tiny.END], [8, 7, tiny.END, 8]]


@pytest.mark.parametrize("kind", tiny.KINDS["encoder_decoder"])
def test_memory_can_be_read_once_and_passed_on(kind: str) -> None:
    model, inputs = tiny.precise(QkvEncoderDecoderForConditionalGeneration, kind), tiny.pairs()
    expected = model(**inputs).logits
    memory = model.get_encoder()(inputs["input_ids"], inputs["attention_mask"])
    rest = {name: value for name, value in inputs.items() if name != "input_ids"}
    assert_close(model(**rest, encoder_outputs=memory).logits, expected)
    assert_close(model(**rest, encoder_outputs=memory.to_tuple()).logits, expected)
    assert_close(model(**rest, encoder_outputs=(memory.last_hidden_state,)).logits, expected)


def test_two_vocabularies_are_not_resized_as_one() -> None:
    fields = {"encoder": {"vocab_size": 50}, "share_embeddings": False}
    model = tiny.precise(QkvEncoderDecoderForConditionalGeneration, "bart", **fields)
    assert model(**tiny.pairs() | {"input_ids": torch.full((2, 7), 49)}).logits.shape[-1] == tiny.VOCABULARY
    assert model.resize_token_embeddings() is model.get_input_embeddings()
    with raises_sentence("50", "61"):
        model.resize_token_embeddings(70)
