"""What is peculiar to the tables of CLIP and its halves."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import qkv
import tiny
from families import variant
from qkv.modeling.conversion.convert import from_transformers, to_transformers


@pytest.mark.parametrize(("end", "pooling"), [(2, "highest"), (3, "end")])
def test_the_first_release_reads_the_highest_token(end: int, pooling: str) -> None:
    official = variant("clip_text_model", "Model", "", eos_token_id=end).build()
    ours = from_transformers(official)
    assert type(ours).__name__ == "QkvTextEncoderModel" and ours.config.pooling == pooling
    assert to_transformers(ours).config.eos_token_id == end


def test_a_factor_on_the_scores_of_one_half_goes_into_its_queries() -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    vision = {"attention_multiplier": 0.7, "image_size": 64}
    config = qkv.presets.clip_vit_b32(**sizes, projection_dim=8, vocab_size=50000, vision_config=vision)
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
