"""What cannot be planned is said in a sentence."""

import pytest

from qkv.scripts.training.plan_subject import find


@pytest.mark.parametrize("name", ["detr_r50", "clip_vit_b32", "rnnsearch_50", "whisper_tiny", "speech_transformer_s"])
def test_a_preset_without_a_plan_is_named(name: str) -> None:
    with pytest.raises(
        ValueError, match=f"preset '{name}' is not planned; plan one that reads or writes text, or a ViT"
    ):
        find(name, [], None)


def test_those_with_a_plan_are_found() -> None:
    assert find("gpt2", [], None).head == "ForCausalLM" and find("vit_base_16", [], None).is_image
    assert (
        find("t5_small", [], None).head == "ForConditionalGeneration"
        and find("bert_base", [], None).head == "ForMaskedLM"
    )
