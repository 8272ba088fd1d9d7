"""What each half of a dual encoder is given."""

from pathlib import Path

from qkv.configuration import QkvDualEncoderConfig, QkvTextEncoderConfig, presets

SMALL = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}


def test_the_text_half_looks_back_only_and_the_image_half_everywhere() -> None:
    config = QkvDualEncoderConfig()
    assert config.text_config.causal and not config.vision_config.causal
    assert (config.text_config.frontend, config.vision_config.frontend) == ("tokens", "patches")
    assert not config.text_config.tie_last_hidden_states and config.vocab_size == config.text_config.vocab_size


def test_flat_fields_are_shared_and_parts_say_what_differs() -> None:
    config = QkvDualEncoderConfig(**SMALL, vision_config={"hidden_size": 12}, projection_dim=5)
    assert (config.text_config.hidden_size, config.vision_config.hidden_size) == (8, 12)
    assert config.text_config.num_hidden_layers == config.vision_config.num_hidden_layers == 1
    assert "hidden_size" not in vars(config)
    made = QkvDualEncoderConfig(text_config=QkvTextEncoderConfig(**SMALL), vision_config={"image_size": 32})
    assert made.text_config.hidden_size == 8 and made.vision_config.image_size == 32


def test_a_saved_config_is_the_config(tmp_path: Path) -> None:
    config = presets.clip_vit_b32(num_hidden_layers=2, text_config={"pooling": "highest"}, embedding_chunk_size=4)
    config.save_pretrained(tmp_path)
    loaded = QkvDualEncoderConfig.from_pretrained(tmp_path)
    assert loaded.to_dict() == {**config.to_dict(), "_name_or_path": loaded.name_or_path}
    assert loaded.text_config.pooling == "highest" and type(loaded.text_config) is QkvTextEncoderConfig


def test_a_preset_takes_differences_flat_and_by_part() -> None:
    config = presets.clip_vit_b32(hidden_act="gelu", hidden_size=64, vision_config={"hidden_size": 96})
    assert (config.text_config.hidden_act, config.vision_config.hidden_act) == ("gelu", "gelu")
    assert (config.text_config.hidden_size, config.vision_config.hidden_size) == (64, 96)
    assert config.vision_config.patch_size == 32 and not config.vision_config.patch_bias
