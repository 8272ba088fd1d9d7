"""What encoders are pre-trained on, each loss by hand."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.testing import assert_close
from transformers import PreTrainedModel

import reference
import tiny
from comparison import encoder as small
from comparison import jittered, mean_surprise
from qkv.modeling import QkvEncoderForMaskedLM, QkvEncoderForPreTraining, QkvEncoderForReplacedTokenDetection


def exact(model_class: Any, **fields: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    return tiny.jitter(model_class(tiny.encoder("bert", **fields))).double().eval()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_masked_words_are_scored_where_labelled(smoothing: float) -> None:
    model, inputs = exact(QkvEncoderForMaskedLM, label_smoothing=smoothing), tiny.masked_language()
    output = model(**inputs)
    assert output.logits.shape == (tiny.BATCH, tiny.LENGTH, tiny.VOCABULARY)
    assert 0 < (inputs["labels"] != -100).sum() < inputs["attention_mask"].sum()
    assert float(output.loss.detach()) == pytest.approx(mean_surprise(output.logits, inputs["labels"], smoothing))
    assert model(**{**inputs, "labels": None}).loss is None


def test_masked_words_are_scored_against_the_embedding_table() -> None:
    model, inputs = exact(QkvEncoderForMaskedLM), tiny.segments()
    head, hidden = model.lm_head, model.model(**inputs).last_hidden_state
    features = head.norm(torch.nn.functional.gelu(hidden @ head.dense.weight.T + head.dense.bias))
    assert_close(model(**inputs).logits, features @ model.model.embed_tokens.weight.T + head.decoder.bias)


def test_pretraining_adds_the_next_sentence_to_the_masked_words() -> None:
    model, inputs = exact(QkvEncoderForPreTraining), tiny.pretraining()
    output = model(**inputs)
    assert output.prediction_logits.shape == (tiny.BATCH, tiny.LENGTH, tiny.VOCABULARY)
    assert output.seq_relationship_logits.shape == (tiny.BATCH, 2)
    words = mean_surprise(output.prediction_logits, inputs["labels"])
    sentences = mean_surprise(output.seq_relationship_logits, inputs["next_sentence_label"])
    assert float(output.loss.detach()) == pytest.approx(words + sentences)


def test_pretraining_adds_up_over_parts_of_a_step() -> None:
    # The count of a step is one of masked words; parts that hold equally many share the sentences equally.
    model, inputs = exact(QkvEncoderForPreTraining), tiny.pretraining()
    inputs["labels"] = torch.where(torch.arange(tiny.LENGTH) < 3, inputs["input_ids"], -100)
    parts = [{name: value[row : row + 1] for name, value in inputs.items()} for row in range(tiny.BATCH)]
    assert_close(sum(model(**part, num_items_in_batch=torch.tensor(6)).loss for part in parts), model(**inputs).loss)


@pytest.mark.parametrize("tied", [True, False])
def test_the_head_is_the_table_only_if_tied(tied: bool) -> None:
    for model_class in (QkvEncoderForMaskedLM, QkvEncoderForPreTraining):
        model = exact(model_class, tie_word_embeddings=tied)
        assert (model.lm_head.decoder.weight is model.model.embed_tokens.weight) == tied
        assert model.get_output_embeddings() is model.lm_head.decoder
        saved = 2 if not tied else 1
        assert model.num_parameters() - exact(model_class).num_parameters() == (saved - 1) * tiny.VOCABULARY * 32


def replaced(**inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    labels = (torch.arange(tiny.LENGTH) % 3 == 0).long().expand(tiny.BATCH, -1).clone()
    labels[:, 1] = -100
    return {**inputs, "labels": labels}


def test_every_real_token_is_told_from_a_replaced_one() -> None:
    model, inputs = exact(QkvEncoderForReplacedTokenDetection), replaced(**tiny.text())
    output = model(**inputs)
    assert output.logits.shape == (tiny.BATCH, tiny.LENGTH) and (inputs["attention_mask"] == 0).any()
    expected = reference.replaced_token_loss(output.logits, inputs["labels"], inputs["attention_mask"])
    assert_close(output.loss, expected, rtol=0, atol=1e-12)
    assert model(**{**inputs, "labels": None}).loss is None
    # A guess of one half costs log 2.
    torch.nn.init.zeros_(model.classifier.score.weight)
    torch.nn.init.zeros_(model.classifier.score.bias)
    assert model(**inputs).loss.item() == pytest.approx(math.log(2))


def test_replaced_tokens_add_up_over_parts_of_a_step() -> None:
    model, inputs = exact(QkvEncoderForReplacedTokenDetection), replaced(**tiny.text())
    count = ((inputs["labels"] != -100) & inputs["attention_mask"].bool()).sum()
    parts = [{name: value[row : row + 1] for name, value in inputs.items()} for row in range(tiny.BATCH)]
    assert_close(sum(model(**part, num_items_in_batch=count).loss for part in parts), model(**inputs).loss)


def test_labels_of_replaced_tokens_are_refused_unless_they_fit() -> None:
    model, inputs = exact(QkvEncoderForReplacedTokenDetection), tiny.text()
    with pytest.raises(ValueError, match="labels contain 2, outside the classes of 2"):
        model(**inputs, labels=torch.full((tiny.BATCH, tiny.LENGTH), 2))
    with pytest.raises(ValueError, match=r"labels of shape \(2, 1\) do not fit scores of shape"):
        model(**inputs, labels=torch.zeros(tiny.BATCH, 1))


def test_an_auto_class_with_two_of_ours_reads_the_config(tmp_path: Path) -> None:
    for model_class in (QkvEncoderForPreTraining, QkvEncoderForReplacedTokenDetection):
        model = jittered(model_class(small(pooling="dense")))
        model.save_pretrained(tmp_path / model_class.__name__)
        loaded = transformers.AutoModelForPreTraining.from_pretrained(tmp_path / model_class.__name__)
        assert type(loaded) is model_class
        assert loaded.config.auto_map["AutoModelForPreTraining"].endswith(model_class.__name__)
