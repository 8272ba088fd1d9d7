"""Two parts and a whole: what is shared, what differs, what is saved."""

import json
from dataclasses import fields
from pathlib import Path

from errors import raises_sentence
from qkv import QkvDecoderConfig, QkvEncoderConfig, QkvEncoderDecoderConfig
from qkv.configuration.configuration_base import QkvConfig

SMALL = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 11}


def test_flat_fields_are_shared_and_parts_hold_the_differences() -> None:
    config = QkvEncoderDecoderConfig(
        **SMALL,
        position="rope",
        pad_token_id=3,
        initializer_range=0.1,
        encoder={"num_hidden_layers": 3},
        decoder={"num_attention_heads": 4, "position": "alibi"},
    )
    encoder, decoder = config.encoder, config.decoder
    assert (encoder.num_hidden_layers, decoder.num_hidden_layers) == (3, 2)
    assert (encoder.num_attention_heads, decoder.num_attention_heads) == (2, 4)
    assert (encoder.position, decoder.position) == ("rope", "alibi")
    assert (encoder.rope_parameters["rope_type"], decoder.rope_parameters) == ("default", None)
    for part in (encoder, decoder):
        assert (part.hidden_size, part.vocab_size, part.pad_token_id, part.initializer_range) == (8, 11, 3, 0.1)
    assert decoder.cross_attention


def test_the_whole_speaks_for_its_decoder() -> None:
    config = QkvEncoderDecoderConfig(**SMALL, decoder={"num_hidden_layers": 5})
    assert (config.hidden_size, config.vocab_size, config.num_hidden_layers) == (8, 11, 5)
    assert config.get_text_config(decoder=True) is config.decoder
    assert config.get_text_config() is config.decoder


def test_fields_of_one_part_are_given_to_it_alone() -> None:
    config = QkvEncoderDecoderConfig(**SMALL, type_vocab_size=2, scale_logits=True)
    assert config.encoder.type_vocab_size == 2
    assert config.decoder.scale_logits
    assert "scale_logits" not in config.encoder.to_dict()


def test_saved_parts_are_full_and_shared_fields_are_gone(tmp_path: Path) -> None:
    config = QkvEncoderDecoderConfig(**SMALL, residual_dropout=0.3, decoder={"num_key_value_heads": 1})
    config.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    for part, config_class in (("encoder", QkvEncoderConfig), ("decoder", QkvDecoderConfig)):
        assert saved[part]["model_type"] == config_class.model_type
        # Every field that differs from a bare transformers config, ours all of them.
        ours = {field.name for field in fields(config_class)} - {field.name for field in fields(QkvConfig)}
        assert ours <= set(saved[part])
        assert saved[part]["residual_dropout"] == 0.3
    assert not {"hidden_size", "residual_dropout", "num_hidden_layers"} & set(saved)
    assert QkvEncoderDecoderConfig.from_pretrained(tmp_path).to_dict() == config.to_dict()


def test_soft_prompts_find_the_sizes_of_the_decoder(tmp_path: Path) -> None:
    config = QkvEncoderDecoderConfig(**SMALL, encoder={"num_attention_heads": 4, "num_hidden_layers": 3})
    found = config.to_dict()
    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
    assert [found[name] for name in sizes] == [8, 2, 2, 2, 4]
    assert QkvEncoderDecoderConfig.from_dict(found).to_dict() == QkvEncoderDecoderConfig(**found).to_dict() == found
    config.decoder.num_attention_heads = config.num_hidden_layers = 1
    found = config.to_dict()
    assert (found["num_attention_heads"], found["num_hidden_layers"]) == (1, 1)
    config.save_pretrained(tmp_path)
    assert not {*sizes} & {*json.loads((tmp_path / "config.json").read_text())}
    assert json.loads(config.to_json_string(use_diff=False))["hidden_size"] == 8


def test_a_part_can_change_on_loading(tmp_path: Path) -> None:
    QkvEncoderDecoderConfig(**SMALL, residual_dropout=0.3).save_pretrained(tmp_path)
    config = QkvEncoderDecoderConfig.from_pretrained(tmp_path, encoder={"attention_dropout": 0.2})
    assert (config.encoder.attention_dropout, config.encoder.residual_dropout) == (0.2, 0.3)
    assert config.decoder.attention_dropout == 0.0


def test_finished_parts_pass_unchanged() -> None:
    encoder = QkvEncoderConfig(**SMALL)
    decoder = QkvDecoderConfig(**SMALL, cross_attention=True)
    config = QkvEncoderDecoderConfig(encoder=encoder, decoder=decoder)
    assert config.encoder is encoder
    assert config.decoder is decoder


def test_given_differences_are_not_touched() -> None:
    encoder = {"num_hidden_layers": 3}
    QkvEncoderDecoderConfig(**SMALL, encoder=encoder)
    assert encoder == {"num_hidden_layers": 3}


def test_a_shared_table_has_one_shape() -> None:
    config = QkvEncoderDecoderConfig(**SMALL, embedding_size=4)
    assert config.share_embeddings
    assert config.encoder.embedding_width == config.decoder.embedding_width == config.decoder.output_width == 4
    assert QkvEncoderDecoderConfig(**SMALL, share_embeddings=False, encoder={"vocab_size": 7}).vocab_size == 11
    for fields_, name in (({"encoder": {"vocab_size": 7}}, "vocab_size"), ({"decoder": {"embedding_size": 4}}, "8")):
        with raises_sentence("share_embeddings=True", name, "share_embeddings=False"):
            QkvEncoderDecoderConfig(**SMALL, **fields_)
