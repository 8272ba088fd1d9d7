"""What is planned is found by its name, with the head that its paper trains."""

import pytest

from qkv.scripts.planning.planned_model import find

HEADS = {
    "gpt2": "ForCausalLM",
    "vit_base_16": "ForImageClassification",
    "bert_base": "ForMaskedLM",
    "t5_small": "ForConditionalGeneration",
    "rnnsearch_50": "ForConditionalGeneration",
    "whisper_tiny": "ForSpeechSeq2Seq",
    "clip_vit_b32": "QkvDualEncoderModel",
    "detr_r50": "ForObjectDetection",
}


@pytest.mark.parametrize("name", HEADS)
def test_a_preset_has_the_head_of_its_paper(name: str) -> None:
    assert find(name, [], None).head == HEADS[name]
