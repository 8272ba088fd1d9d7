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
from qkv.modeling import (
    QkvEncoderForContactPrediction,
    QkvEncoderForMaskedLM,
    QkvEncoderForPreTraining,
    QkvEncoderForReplacedTokenDetection,
    QkvEncoderModel,
)


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


def test_labels_of_replaced_tokens_are_refused_unless_they_fit() -> None:
    model, inputs = tiny.precise(QkvEncoderForReplacedTokenDetection), tiny.text()
    with pytest.raises(ValueError, match="labels"):
        model(**inputs, labels=torch.full((tiny.BATCH, tiny.LENGTH), 2))
    with pytest.raises(ValueError, match="labels"):
        model(**inputs, labels=torch.zeros(tiny.BATCH, 1))


CONTACTS = pytest.mark.parametrize("head", ["attention", "outer_product"])


def contact_map() -> torch.Tensor:
    """Labels of the residues of `tiny.text()`, some of them unknown; those of padding are 0, which counts nowhere."""
    length = tiny.LENGTH - 2
    labels = torch.randint(0, 2, (tiny.BATCH, length, length), generator=torch.Generator().manual_seed(3))
    near = (torch.arange(length) - torch.arange(length)[:, None]).abs() < 2
    return torch.maximum(labels, labels.mT).masked_fill(near, -100)


@CONTACTS
def test_contacts_of_residues_are_learned(head: str) -> None:
    model, inputs, labels = tiny.precise(QkvEncoderForContactPrediction, contact_head=head), tiny.text(), contact_map()
    output = model(**inputs, labels=labels)
    assert torch.equal(output.logits, output.logits.mT) and output.logits.shape == labels.shape
    real = torch.arange(tiny.LENGTH - 2) < inputs["attention_mask"].sum(-1, keepdim=True) - 2
    due = (labels != -100) & real[:, None] & real[..., None]
    expected = reference.binary_cross_entropy(output.logits[due], labels[due])
    assert_close(output.loss, expected, rtol=0, atol=1e-12)
    # The loss of a symmetric map is that of its upper triangle.
    upper = torch.ones_like(labels).triu().bool()
    assert_close(model(**inputs, labels=labels.where(upper, -100)).loss, output.loss, rtol=0, atol=1e-12)
    assert model(**inputs).loss is None and model(**inputs, labels=torch.full_like(labels, -100)).loss == 0


@CONTACTS
def test_contacts_stand_at_the_residues_wherever_padding_is(head: str) -> None:
    model = tiny.precise(QkvEncoderForContactPrediction, "local", contact_head=head)
    right, size = tiny.text(), tiny.LENGTH - 2
    left = {name: torch.stack((value[0], value[1].roll(2))) for name, value in right.items()}
    assert (left["attention_mask"][1, :2] == 0).all()
    expected, actual = (model(**inputs).logits[1, : size - 2, : size - 2] for inputs in (right, left))
    alone = model(right["input_ids"][1:, :-2]).logits[0]
    assert_close(actual, expected, rtol=0, atol=1e-12)
    assert_close(alone, expected, rtol=0, atol=1e-12)


def test_contacts_need_no_choice_of_an_attention_backend() -> None:
    """The attention head asks for weights itself; only those who ask get them, and the encoder of others is as before."""
    model = tiny.precise(QkvEncoderForContactPrediction, contact_head="attention")
    assert model.config._attn_implementation == "sdpa"
    eager = tiny.precise(QkvEncoderForContactPrediction, contact_head="attention", attn_implementation="eager")
    assert_close(model(**tiny.text()).logits, eager(**tiny.text()).logits, rtol=0, atol=1e-12)
    assert model(**tiny.text()).attentions is None and len(model(**tiny.text(), output_attentions=True).attentions) == 2


def test_a_contact_head_is_carried_by_other_heads_and_trained_by_its_own(tmp_path: Path) -> None:
    words = QkvEncoderForMaskedLM(small(contact_head="attention"))
    frozen = {name for name, weight in words.named_parameters() if not weight.requires_grad}
    assert frozen == {"model.contact_head.regression.weight", "model.contact_head.regression.bias"}
    whole = QkvEncoderForContactPrediction(small(contact_head="outer_product"))
    assert all(weight.requires_grad for weight in whole.parameters())
    words.save_pretrained(tmp_path)
    contacts = QkvEncoderForContactPrediction.from_pretrained(tmp_path)
    assert frozen == {name for name, weight in contacts.named_parameters() if weight.requires_grad}
    contacts.save_pretrained(tmp_path / "contacts")
    base = QkvEncoderModel.from_pretrained(tmp_path / "contacts")
    assert contacts.config.auto_map["AutoModel"].endswith("ForContactPrediction")
    assert base.config.auto_map == words.config.auto_map
    assert torch.equal(contacts.model.contact_head.regression.weight, words.model.contact_head.regression.weight)


def test_contacts_are_refused_where_they_cannot_be_told() -> None:
    with pytest.raises(ValueError, match="contact_head=None"):
        QkvEncoderForContactPrediction(small())
    model = tiny.precise(QkvEncoderForContactPrediction, contact_head="outer_product")
    for labels in (torch.zeros(2, 9, 9), torch.full((2, 7, 7), 2)):
        with pytest.raises(ValueError, match="labels"):
            model(**tiny.text(), labels=labels)


PRETRAINED = QkvEncoderForPreTraining, QkvEncoderForReplacedTokenDetection, QkvEncoderForContactPrediction


@pytest.mark.parametrize("model_class", PRETRAINED)
def test_losses_add_up_over_parts_of_a_step(model_class: type) -> None:
    """Counted in a step as a whole; of sentences, parts that hold equally many masked words have an equal share."""
    inputs = {**tiny.text(), "labels": torch.where(torch.arange(tiny.LENGTH) < 3, tiny.text()["input_ids"], -100)}
    count = (inputs["labels"] != -100).sum()
    if model_class is QkvEncoderForPreTraining:
        inputs["next_sentence_label"] = torch.tensor([0, 1])
    elif model_class is QkvEncoderForReplacedTokenDetection:
        inputs = replaced(**tiny.text())
        count = ((inputs["labels"] != -100) & inputs["attention_mask"].bool()).sum()
    else:
        inputs["labels"] = contact_map()
        inputs["labels"][1, 5:], inputs["labels"][1, :, 5:] = -100, -100
        count = (inputs["labels"] != -100).sum()
    fields = {"contact_head": "attention"} if model_class is QkvEncoderForContactPrediction else {}
    model = tiny.precise(model_class, **fields)
    parts = [{name: value[row : row + 1] for name, value in inputs.items()} for row in range(tiny.BATCH)]
    assert_close(sum(model(**part, num_items_in_batch=count).loss for part in parts), model(**inputs).loss)


def test_an_auto_class_with_two_of_ours_reads_the_config(tmp_path: Path) -> None:
    for model_class in (QkvEncoderForPreTraining, QkvEncoderForReplacedTokenDetection):
        model = jittered(model_class(small(pooling="dense")))
        model.save_pretrained(tmp_path / model_class.__name__)
        loaded = transformers.AutoModelForPreTraining.from_pretrained(tmp_path / model_class.__name__)
        assert type(loaded) is model_class
        assert loaded.config.auto_map["AutoModelForPreTraining"].endswith(model_class.__name__)
