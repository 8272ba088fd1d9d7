"""A decoder's own fields: constants, widths."""

from qkv import QkvDecoderConfig


def test_constants_of_the_family_are_not_saved() -> None:
    assert (QkvDecoderConfig.frontend, QkvDecoderConfig.causal) == ("tokens", True)
    assert not {"frontend", "causal"} & set(QkvDecoderConfig().to_dict())


def test_a_decoder_is_its_own_text_config() -> None:
    config = QkvDecoderConfig()
    assert config.get_text_config(decoder=True) is config


def test_embeddings_are_as_wide_as_layers_unless_given() -> None:
    config = QkvDecoderConfig(hidden_size=8, num_attention_heads=2)
    assert (config.embedding_width, config.position_width, config.output_width) == (8, 8, 8)
    config = QkvDecoderConfig(hidden_size=8, num_attention_heads=2, embedding_size=4)
    assert (config.embedding_width, config.position_width, config.output_width) == (4, 8, 4)


def test_the_factor_of_the_logits_has_the_name_that_losses_of_others_read() -> None:
    config = QkvDecoderConfig(hidden_size=16, num_attention_heads=2, scale_logits=True)
    assert (config.logit_scale, QkvDecoderConfig().logit_scale) == (0.25, 1.0)
    assert "logit_scale" not in config.to_dict()
