"""What a card is about: the right Auto class, and the class of transformers that is the same."""

import pytest

import qkv
from qkv.scripts.publishing.card.model import CardModel, Place, changed, counterpart

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


def test_differences_go_into_nested_configs() -> None:
    defaults = {"a": 1, "inner": {"b": 2, "c": 3}, "architectures": None}
    assert changed({"a": 1, "inner": {"b": 5, "c": 3}, "architectures": ["X"]}, defaults) == {"inner": {"b": 5}}


def test_a_name_stands_where_there_is_no_address_yet() -> None:
    config = qkv.presets.bert_base(**TINY).to_dict()
    subject = CardModel.of("mine", config, "QkvEncoderForMaskedLM", Place())
    assert (subject.repo, subject.other, subject.native) == ("user/mine", None, False)
