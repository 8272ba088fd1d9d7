"""Losses of pre-training add up over parts of a step, and count real tokens alone."""

import math
from pathlib import Path

import pytest
import torch
import transformers
from torch.testing import assert_close

import reference
import tiny
from comparison import encoder as small
from comparison import jittered
from qkv.modeling import QkvEncoderForPreTraining, QkvEncoderForReplacedTokenDetection


def test_pretraining_adds_up_over_parts_of_a_step() -> None:
    # The count of a step is one of masked words; parts that hold equally many share the sentences equally.
    model, inputs = tiny.precise(QkvEncoderForPreTraining), tiny.pretraining()
    inputs["labels"] = torch.where(torch.arange(tiny.LENGTH) < 3, inputs["input_ids"], -100)
    parts = [{name: value[row : row + 1] for name, value in inputs.items()} for row in range(tiny.BATCH)]
    assert_close(sum(model(**part, num_items_in_batch=torch.tensor(6)).loss for part in parts), model(**inputs).loss)


def replaced(**inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    labels = (torch.arange(tiny.LENGTH) % 3 == 0).long().expand(tiny.BATCH, -1).clone()
    labels[:, 1] = -100
    return {**inputs, "labels": labels}


def test_every_real_token_is_told_from_a_replaced_one() -> None:
    model, inputs = tiny.precise(QkvEncoderForReplacedTokenDetection), replaced(**tiny.text())
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
    model, inputs = tiny.precise(QkvEncoderForReplacedTokenDetection), replaced(**tiny.text())
    count = ((inputs["labels"] != -100) & inputs["attention_mask"].bool()).sum()
    parts = [{name: value[row : row + 1] for name, value in inputs.items()} for row in range(tiny.BATCH)]
    assert_close(sum(model(**part, num_items_in_batch=count).loss for part in parts), model(**inputs).loss)


def test_labels_of_replaced_tokens_are_refused_unless_they_fit() -> None:
    model, inputs = tiny.precise(QkvEncoderForReplacedTokenDetection), tiny.text()
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
