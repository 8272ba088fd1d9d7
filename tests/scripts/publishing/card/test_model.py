"""What a card is about: the right Auto class, and the class of transformers that is the same."""

import pytest

import qkv
from qkv.scripts.publishing.card.model import CardModel, Place, auto_class, changed, counterpart, official_auto_class

TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}


@pytest.mark.parametrize(
    ("config", "architecture", "expected"),
    [
        (qkv.presets.bert_base(**TINY), "QkvEncoderForMaskedLM", ("bert", "BertForMaskedLM")),
        (qkv.presets.gpt2(**TINY), "QkvDecoderForCausalLM", ("gpt2", "GPT2LMHeadModel")),
        (qkv.presets.t5_small(head_dim=4, **TINY), "QkvEncoderDecoderForConditionalGeneration",
         ("t5", "T5ForConditionalGeneration")),
        (qkv.presets.vit_base_16(**TINY), "QkvImageEncoderForImageClassification", ("vit", "ViTForImageClassification")),
        (qkv.presets.bert_base(position="alibi", **TINY), "QkvEncoderForMaskedLM", None),
    ],
)  # fmt: skip
def test_the_same_class_of_transformers(config, architecture: str, expected: tuple[str, str] | None) -> None:
    assert counterpart(config.to_dict(), architecture) == expected


@pytest.mark.parametrize(
    ("model_type", "architecture", "expected"),
    [
        ("gpt2", "GPT2LMHeadModel", "AutoModelForCausalLM"),
        ("t5", "T5ForConditionalGeneration", "AutoModelForSeq2SeqLM"),
        ("deit", "DeiTForImageClassificationWithTeacher", "AutoModelForImageClassification"),
        ("bert", "BertForPreTraining", "AutoModelForPreTraining"),
        ("bert", "BertModel", "AutoModel"),
    ],
)
def test_the_auto_class_of_an_official_class(model_type: str, architecture: str, expected: str) -> None:
    assert official_auto_class({"model_type": model_type}, architecture) == expected


def test_the_auto_class_of_ours() -> None:
    config = qkv.presets.bert_base(**TINY).to_dict()
    assert auto_class(config, "QkvEncoderForMultipleChoice") == "AutoModelForMultipleChoice"
    assert auto_class(config, "QkvEncoderForReplacedTokenDetection") == "AutoModel"  # it has none of its own


def test_differences_go_into_nested_configs() -> None:
    defaults = {"a": 1, "inner": {"b": 2, "c": 3}, "architectures": None}
    assert changed({"a": 1, "inner": {"b": 5, "c": 3}, "architectures": ["X"]}, defaults) == {"inner": {"b": 5}}


def test_a_name_stands_where_there_is_no_address_yet() -> None:
    config = qkv.presets.bert_base(**TINY).to_dict()
    subject = CardModel.of("mine", config, "QkvEncoderForMaskedLM", Place())
    assert (subject.repo, subject.other, subject.native) == ("user/mine", None, False)
