"""What each head is for: known to transformers, and said of every head of ours."""

import pytest
from transformers.pipelines import SUPPORTED_TASKS

import qkv
from qkv.scripts.publishing.card.heads import HEADS, KINDS
from qkv.scripts.publishing.card.model import CardModel, Place
from qkv.scripts.publishing.card.usage import programs

FAMILIES = (
    qkv.QkvEncoderConfig,
    qkv.QkvDecoderConfig,
    qkv.QkvEncoderDecoderConfig,
    qkv.QkvRecurrentConfig,
    qkv.QkvDualEncoderConfig,
    qkv.QkvDetectionConfig,
)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_auto_class_of_a_family_is_said_what_for(family: type) -> None:
    assert set(family.auto_classes) - {"AutoConfig", "AutoModelForDecision"} <= set(HEADS)  # it loads a causal LM


# The kinds of input of the heads that do not take tokens alone.
FRONTENDS = {
    **dict.fromkeys(("AutoModelForImageClassification", "AutoModelForMaskedImageModeling"), {"patch_size": 2}),
    "AutoModelForObjectDetection": {"backbone_config": {}},
    "AutoModelForZeroShotImageClassification": {"vision_config": {}},
    **dict.fromkeys(("AutoModelForCTC", "AutoModelForSpeechSeq2Seq"), {"num_mel_bins": 6}),
}


@pytest.mark.parametrize(
    ("name", "config"), [*((name, FRONTENDS.get(name, {})) for name in HEADS), ("AutoModel", {"patch_size": 2})]
)
def test_a_pipeline_is_promised_exactly_where_transformers_has_one(name: str, config: dict) -> None:
    subject = CardModel("x", config, "X", "x", name, None, Place())
    classes = [found.__name__ for found in SUPPORTED_TASKS.get(subject.task, {}).get("pt", ())]
    assert any(f'pipeline("{subject.task}", ' in text for text in programs(subject)) == (name in classes)


def test_kinds_are_the_names_of_tasks() -> None:
    assert "image-classification" in KINDS and "text-generation" in KINDS and None not in KINDS
