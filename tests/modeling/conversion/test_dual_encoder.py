"""Which CLIPs convert, what of ours is none, and what the published files say beside."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import CLIPConfig

import qkv
import tiny
from families import variant
from qkv.modeling.conversion.config import lost_on_reading
from qkv.modeling.conversion.convert import from_transformers, to_transformers
from qkv.modeling.conversion.dual_encoder import CLIP

# What the first release of transformers with CLIP wrote into every part, and the first checkpoints still say.
ANCIENT = {
    **{"add_cross_attention": False, "bad_words_ids": None, "diversity_penalty": 0.0, "do_sample": False},
    **{"dropout": 0.0, "early_stopping": False, "is_decoder": False, "length_penalty": 1.0, "num_beams": 1},
    **{"pruned_heads": {}, "return_dict": True, "tie_encoder_decoder": False, "tie_word_embeddings": True},
    **{"torchscript": False, "use_bfloat16": False, "typical_p": 1.0, "transformers_version": "4.16.0.dev0"},
}
TEXT = {**ANCIENT, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1, "projection_dim": 512}
PUBLISHED = {
    "first": {"text_config": TEXT, "vision_config": {**ANCIENT, "patch_size": 32}, "initializer_factor": 1.0},
    "large": {
        "text_config": {**TEXT, "hidden_size": 768, "num_attention_heads": 12, "projection_dim": 768},
        "vision_config": {**ANCIENT, "hidden_size": 1024, "patch_size": 14, "num_attention_heads": 16},
        "projection_dim": 768,
    },
    "laion": {"text_config": {**TEXT, "hidden_act": "gelu"}, "vision_config": {**ANCIENT, "hidden_act": "gelu"}},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs_lose_nothing(name: str) -> None:
    assert lost_on_reading(CLIP, CLIP.heads[0], CLIPConfig(**PUBLISHED[name])) == []


def test_the_preset_is_the_official_config() -> None:
    model = qkv.QkvDualEncoderModel(small(qkv.presets.clip_vit_b32))
    assert type(to_transformers(model)).__name__ == "CLIPModel"


def small(preset: Any, **fields: Any) -> Any:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    return preset(**sizes, projection_dim=8, vocab_size=50000, **fields)


@pytest.mark.parametrize(("end", "pooling"), [(2, "highest"), (3, "end")])
def test_the_first_release_reads_the_highest_token(end: int, pooling: str) -> None:
    official = variant("clip_text_model", "Model", "", eos_token_id=end).build()
    ours = from_transformers(official)
    assert type(ours).__name__ == "QkvTextEncoderModel" and ours.config.pooling == pooling
    assert to_transformers(ours).config.eos_token_id == end


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"text_config": {"pooling": "mean"}}, "text_config.pooling='mean' would become 'end'"),
        ({"text_config": {"eos_token_id": 2}}, "text_config.pooling='end' would become 'highest'"),
        ({"vision_config": {"patch_bias": True}}, "vision_config.patch_bias=True would become False"),
        ({"norm": "rms"}, "text_config.norm='rms' would become 'layer'"),
        ({"residual_dropout": 0.1}, "text_config.residual_dropout=0.1 would become 0.0"),
    ],
)
def test_what_clip_has_not_is_named(fields: dict[str, Any], sentence: str) -> None:
    model = qkv.QkvDualEncoderModel(small(qkv.presets.clip_vit_b32, **fields))
    with pytest.raises(ValueError, match=f"in its nearest, CLIPModel, .*{sentence}"):
        to_transformers(model)


def test_a_factor_on_the_scores_of_one_half_goes_into_its_queries() -> None:
    config = small(qkv.presets.clip_vit_b32, vision_config={"attention_multiplier": 0.7, "image_size": 64})
    torch.manual_seed(0)
    model = tiny.jitter(qkv.QkvDualEncoderModel(config)).eval()
    inputs = {"input_ids": torch.tensor([[5, 6, 49407]]), "pixel_values": torch.randn(2, 3, 64, 64)}
    with torch.no_grad():
        expected, found = model(**inputs), to_transformers(model)(**inputs)
    assert (found.logits_per_image - expected.logits_per_image).abs().max() <= 1e-4


def test_tables_of_positions_in_old_files_are_left_out(tmp_path: Path) -> None:
    """Checkpoints of before 2023 hold the numbers 0, 1, 2, … as a tensor of each half."""
    official = variant("clip", "Model", "").build()
    official.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    for half, length in (("text", 24), ("vision", 10)):
        weights[f"{half}_model.embeddings.position_ids"] = torch.arange(length)[None]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "clip"
    ours = from_transformers(tmp_path)
    back = to_transformers(ours)
    assert isinstance(back, transformers.CLIPModel)
    assert all(torch.equal(value, back.state_dict()[name]) for name, value in official.state_dict().items())
