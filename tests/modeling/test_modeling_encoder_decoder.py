"""Encoder-decoders by the numbers of their papers, and what happens to labels, ties and memory."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close
from transformers import EncoderDecoderCache, PreTrainedModel

import tiny
from qkv.configuration import presets
from qkv.modeling import QkvEncoderDecoderForConditionalGeneration, QkvEncoderDecoderModel

# sources.md, section 5; the Transformer's by table 3: 6 x (12 d^2 + 16 d^2 + ...) and one shared table of 37000 words.
PARAMETERS = [
    ("t5_small", 60_506_624),
    ("t5_base", 222_903_552),
    ("bart_base", 139_420_416),
    ("transformer_base", 63_045_632),
    ("transformer_big", 214_171_648),
]


@pytest.mark.parametrize(("preset", "count"), PARAMETERS)
def test_the_number_of_parameters_is_the_papers(preset: str, count: int) -> None:
    with torch.device("meta"):
        model = QkvEncoderDecoderForConditionalGeneration(getattr(presets, preset)())
    assert model.num_parameters() == model.model.num_parameters() == count  # one table is embedding and head


@pytest.mark.parametrize(("width", "inner", "count"), [(512, 2048, 63_045_632), (1024, 4096, 214_171_648)])
def test_the_transformers_parameters_are_its_matrices(width: int, inner: int, count: int) -> None:
    attention, norm = 4 * width * width, 2 * width
    feed_forward = 2 * width * inner + width + inner
    encoder, decoder = attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm
    assert 37_000 * width + 6 * (encoder + decoder) == count


def exact(model_class: Any, kind: str = "bart", **fields: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    return tiny.jitter(model_class(tiny.encoder_decoder(kind, **fields))).double().eval()


def test_labels_become_decoder_inputs_shifted_right() -> None:
    model = exact(QkvEncoderDecoderForConditionalGeneration)
    labels = torch.tensor([[5, 6, tiny.END], [7, tiny.END, -100]])
    shifted = model.prepare_decoder_input_ids_from_labels(labels=labels)
    assert shifted.tolist() == [[tiny.START, 5, 6], [tiny.START, 7, tiny.END]]
    longer = torch.tensor([[7, -100, -100]])
    assert model.prepare_decoder_input_ids_from_labels(longer).tolist() == [[tiny.START, 7, tiny.PAD]]


def test_a_text_may_start_with_its_own_last_token() -> None:
    """mBART's texts end with the token of their language, which tells the decoder what to write."""
    model = exact(QkvEncoderDecoderForConditionalGeneration, start_with_last_token=True)
    labels = torch.tensor([[5, 6, tiny.END, 9], [7, tiny.END, 8, -100]])
    shifted = model.prepare_decoder_input_ids_from_labels(labels)
    assert shifted.tolist() == [[9, 5, 6, tiny.END], [8, 7, tiny.END, 8]]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kind", tiny.ENCODER_DECODERS)
def test_each_position_predicts_its_own_label(kind: str, smoothing: float) -> None:
    model = exact(QkvEncoderDecoderForConditionalGeneration, kind, label_smoothing=smoothing)
    inputs = tiny.translations()
    output = model(**inputs)
    assert output.logits.shape == (tiny.BATCH, tiny.LENGTH, tiny.VOCABULARY)
    assert output.encoder_last_hidden_state.shape == (tiny.BATCH, tiny.SOURCE, 32)
    chances, due = output.logits.log_softmax(-1), inputs["labels"] != -100
    right = chances.gather(-1, inputs["labels"].clamp(min=0)[..., None])[..., 0]
    assert_close(output.loss, (-(1 - smoothing) * right - smoothing * chances.mean(-1))[due].mean())
    fed = model.prepare_decoder_input_ids_from_labels(inputs["labels"])
    again = model(**inputs, decoder_input_ids=fed)
    assert torch.equal(again.loss, output.loss) and torch.equal(again.logits, output.logits)
    count = model(**inputs, num_items_in_batch=torch.tensor(40)).loss
    assert_close(count, output.loss * int(due.sum()) / 40)


def test_without_anything_to_decode_there_is_one_sentence() -> None:
    for model_class in (QkvEncoderDecoderModel, QkvEncoderDecoderForConditionalGeneration):
        with pytest.raises(ValueError, match="give decoder_input_ids, decoder_inputs_embeds, or labels"):
            exact(model_class)(**tiny.text())


@pytest.mark.parametrize("kind", tiny.ENCODER_DECODERS)
def test_memory_can_be_read_once_and_passed_on(kind: str) -> None:
    model, inputs = exact(QkvEncoderDecoderForConditionalGeneration, kind), tiny.pairs()
    expected = model(**inputs).logits
    memory = model.get_encoder()(inputs["input_ids"], inputs["attention_mask"])
    rest = {name: value for name, value in inputs.items() if name != "input_ids"}
    assert_close(model(**rest, encoder_outputs=memory).logits, expected)
    assert_close(model(**rest, encoder_outputs=memory.to_tuple()).logits, expected)
    assert_close(model(**rest, encoder_outputs=(memory.last_hidden_state,)).logits, expected)


@pytest.mark.parametrize("kind", tiny.ENCODER_DECODERS)
def test_memory_is_projected_once(kind: str) -> None:
    model, inputs = exact(QkvEncoderDecoderModel, kind), tiny.pairs()
    target, mask = inputs.pop("decoder_input_ids"), inputs.pop("decoder_attention_mask")
    calls = []
    for layer in model.decoder.layers:
        layer.cross_attn.k_proj.register_forward_hook(lambda *_: calls.append(1))
    expected = model(**inputs, decoder_input_ids=target, decoder_attention_mask=mask, use_cache=False).last_hidden_state
    cache, parts = None, []
    for step in range(tiny.LENGTH):
        seen = {"decoder_attention_mask": mask[:, : step + 1], "past_key_values": cache, "use_cache": True}
        output = model(**inputs, decoder_input_ids=target[:, step : step + 1], **seen)
        cache = output.past_key_values
        parts.append(output.last_hidden_state)
    assert isinstance(cache, EncoderDecoderCache) and len(calls) == 2 * len(model.decoder.layers)
    assert_close(torch.cat(parts, dim=1)[mask.bool()], expected[mask.bool()])


def test_padding_of_the_source_is_not_read() -> None:
    model, inputs = exact(QkvEncoderDecoderModel, "t5"), tiny.pairs()
    changed = inputs["input_ids"].where(inputs["attention_mask"].bool(), torch.tensor(9))
    assert (changed != inputs["input_ids"]).any()
    expected = model(**inputs).last_hidden_state
    assert torch.equal(model(**{**inputs, "input_ids": changed}).last_hidden_state, expected)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_tables_are_shared_and_tied_as_the_config_says(shared: bool, tied: bool) -> None:
    fields = {"share_embeddings": shared, "tie_word_embeddings": tied}
    model = exact(QkvEncoderDecoderForConditionalGeneration, **fields)
    encoder, decoder = model.model.encoder.embed_tokens.weight, model.model.decoder.embed_tokens.weight
    assert (encoder is decoder) == shared and (model.lm_head.weight is decoder) == tied
    one = exact(QkvEncoderDecoderForConditionalGeneration).num_parameters()
    assert model.num_parameters() == one + (2 - shared - tied) * tiny.VOCABULARY * 32
    assert model.get_input_embeddings() is model.model.encoder.embed_tokens
    assert model.get_output_embeddings() is model.lm_head
    assert model.get_encoder() is model.model.encoder and model.get_decoder() is model.model.decoder


def test_two_vocabularies_are_not_resized_as_one() -> None:
    fields = {"encoder": {"vocab_size": 50}, "share_embeddings": False}
    model = exact(QkvEncoderDecoderForConditionalGeneration, **fields)
    assert model(**tiny.pairs() | {"input_ids": torch.full((2, 7), 49)}).logits.shape[-1] == tiny.VOCABULARY
    assert model.resize_token_embeddings() is model.get_input_embeddings()
    with pytest.raises(ValueError, match="source and target have vocabularies of 50 and 61 tokens"):
        model.resize_token_embeddings(70)


def test_the_parts_may_differ() -> None:
    model = exact(QkvEncoderDecoderModel, "deep")
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (3, 2)
    heads = [part.layers[0].self_attn.num_key_value_groups for part in (model.encoder, model.decoder)]
    assert heads == [1, 2]
