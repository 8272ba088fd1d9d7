"""What each head is for: known to transformers, and said of every head of ours."""

import pytest
from transformers.pipelines import SUPPORTED_TASKS

import qkv
from qkv.scripts.publishing.card.heads import HEADS, IMAGE_FEATURES, KINDS, Head

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
    assert set(family.auto_classes) - {"AutoConfig"} <= set(HEADS)


@pytest.mark.parametrize(("name", "head"), [*HEADS.items(), ("AutoModel", IMAGE_FEATURES)])
def test_a_pipeline_is_promised_exactly_where_transformers_has_one(name: str, head: Head) -> None:
    classes = [found.__name__ for found in SUPPORTED_TASKS.get(head.tag, {}).get("pt", ())]
    assert (name in classes) == (head.pipeline is not None)


def test_kinds_are_the_names_of_tasks() -> None:
    assert "image-classification" in KINDS and "text-generation" in KINDS and None not in KINDS
