"""Decoders by the numbers of their papers, and each head's loss by hand."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers import DynamicCache, PreTrainedModel

import tiny
from qkv.configuration import presets
from qkv.modeling import (
    QkvDecoderForCausalLM,
    QkvDecoderForQuestionAnswering,
    QkvDecoderForSequenceClassification,
    QkvDecoderForTokenClassification,
    QkvDecoderModel,
)

# sources.md, section 5, and the sizes transformers counts for the rest.
PARAMETERS = [
    ("gpt2", 124_439_808),
    ("gpt2_medium", 354_823_168),
    ("gpt2_large", 774_030_080),
    ("gpt2_xl", 1_557_611_200),
    ("llama_3_2_1b", 1_235_814_400),
]


@pytest.mark.parametrize(("preset", "count"), PARAMETERS)
def test_the_number_of_parameters_is_the_papers(preset: str, count: int) -> None:
    with torch.device("meta"):
        model = QkvDecoderForCausalLM(getattr(presets, preset)())
    assert model.num_parameters() == model.model.num_parameters() == count  # the head is the table


def exact(model_class: Any, kind: str = "gpt2", **fields: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    return tiny.jitter(model_class(tiny.decoder(kind, **fields))).double().eval()


def surprises(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """-log p of each label that is due, some of the probability spread over all classes."""
    chances = logits.log_softmax(-1)
    right = chances.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    return (-(1 - smoothing) * right - smoothing * chances.mean(-1))[labels != -100]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["gpt2", "bloom"])
def test_each_token_predicts_the_next(kind: str, smoothing: float) -> None:
    model, inputs = exact(QkvDecoderForCausalLM, kind, label_smoothing=smoothing), tiny.causal_labels()
    output = model(**inputs)
    assert output.logits.shape == (tiny.BATCH, tiny.LENGTH, tiny.VOCABULARY)
    expected = surprises(output.logits[:, :-1], inputs["labels"][:, 1:], smoothing)
    assert len(expected) == inputs["attention_mask"].sum() - tiny.BATCH
    assert_close(output.loss, expected.mean())
    # The first label is nobody's target, and labels shifted before are used as they are.
    other = inputs["labels"].clone()
    other[:, 0] = 7
    assert torch.equal(model(**{**inputs, "labels": other}).loss, output.loss)
    shifted = torch.nn.functional.pad(inputs.pop("labels")[:, 1:], (0, 1), value=-100)
    assert torch.equal(model(**inputs, shift_labels=shifted).loss, output.loss)


def test_the_count_of_a_whole_step_replaces_that_of_the_batch() -> None:
    model, inputs = exact(QkvDecoderForCausalLM), tiny.causal_labels()
    mean, due = model(**inputs).loss, int((inputs["labels"][:, 1:] != -100).sum())
    for count in (40, torch.tensor(40)):
        assert_close(model(**inputs, num_items_in_batch=count).loss, mean * due / 40)


def test_a_batch_without_a_target_costs_nothing() -> None:
    model, inputs = exact(QkvDecoderForCausalLM), tiny.causal_labels()
    loss = model(**{**inputs, "labels": torch.full_like(inputs["labels"], -100)}).loss
    loss.backward()
    assert loss == 0 and all(not value.grad.any() for value in model.parameters())


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("by_mask", [True, False])
def test_a_text_is_classified_by_its_last_real_token(side: str, by_mask: bool) -> None:
    model, inputs = exact(QkvDecoderForSequenceClassification), tiny.text()
    if side == "left":
        inputs = {name: torch.stack((value[0], value[1].roll(2))) for name, value in inputs.items()}
    if not by_mask and side == "right":  # padding found by its id, as in GPT-2's head
        inputs.pop("attention_mask")
    labels = torch.tensor([2, 0])
    output = model(**inputs, labels=labels)
    last = [tiny.LENGTH - 1, tiny.LENGTH - 3 if side == "right" else tiny.LENGTH - 1]
    hidden = model.model(**inputs).last_hidden_state
    assert_close(output.logits, torch.stack([hidden[row, at] for row, at in enumerate(last)]) @ model.score.weight.T)
    assert_close(output.loss, surprises(output.logits, labels).mean())


def test_tokens_are_labelled_from_what_stands_before_them() -> None:
    model, inputs = exact(QkvDecoderForTokenClassification), tiny.token_classes()
    output = model(**inputs)
    assert output.logits.shape == (tiny.BATCH, tiny.LENGTH, tiny.LABELS)
    assert_close(output.loss, surprises(output.logits, inputs["labels"]).mean())


def test_an_answer_is_its_first_and_its_last_token() -> None:
    model, inputs = exact(QkvDecoderForQuestionAnswering), tiny.spans()
    output = model(**inputs)
    starts = surprises(output.start_logits, inputs["start_positions"]).mean()
    ends = surprises(output.end_logits, inputs["end_positions"]).mean()
    assert_close(output.loss, (starts + ends) / 2)


def test_a_cache_is_kept_only_if_asked_for() -> None:
    model, inputs = exact(QkvDecoderModel), tiny.text()
    cache = model(**inputs).past_key_values
    assert isinstance(cache, DynamicCache) and cache.get_seq_length() == tiny.LENGTH
    assert model(**inputs, use_cache=False).past_key_values is None
    given = DynamicCache(config=model.config)
    assert model(**inputs, past_key_values=given).past_key_values is given


def test_a_window_forgets_what_it_will_not_see() -> None:
    model = exact(QkvDecoderModel, "mistral")
    cache = model(torch.arange(4, 24)[None]).past_key_values
    kept = [layer.keys.shape[2] for layer in cache.layers]
    assert kept == [model.config.sliding_window - 1, 20]


@pytest.mark.parametrize("tied", [True, False])
def test_the_head_is_the_table_only_if_tied(tied: bool) -> None:
    model = exact(QkvDecoderForCausalLM, tie_word_embeddings=tied)
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied
    assert model.get_output_embeddings() is model.lm_head and model.lm_head.bias is None
    assert exact(QkvDecoderForCausalLM, "bloom").lm_head.bias.shape == (tiny.VOCABULARY,)


def test_logits_can_be_scaled_down() -> None:
    plain, inputs = exact(QkvDecoderForCausalLM), tiny.text()
    scaled = exact(QkvDecoderForCausalLM, scale_logits=True)
    assert_close(scaled(**inputs).logits, plain(**inputs).logits / 32**0.5)
