"""Fields that weights tell win over a config that is wrong about its own checkpoint, and the other way round."""

import pytest
import torch

import tiny
from qkv.modeling.conversion.observation import frequencies, frequency_names, implied, observe

ROW = (("{model.position.inv_freq}", "{esm.rotary_embeddings.inv_freq}"), ("norm", "final_norm"))


@pytest.mark.parametrize("tied", [True, False])
def test_weights_tell_whether_they_are_tied(tied: bool) -> None:
    config, table = tiny.encoder(tie_word_embeddings=not tied), torch.ones(3, 2)
    observe(config, {"lm_head.decoder.weight": table, "model.embed_tokens.weight": table if tied else table.clone()})
    assert config.tie_word_embeddings is tied


@pytest.mark.parametrize("biased", [True, False])
def test_weights_tell_whether_words_have_a_bias(biased: bool) -> None:
    config = tiny.decoder(lm_head_bias=not biased)
    observe(config, {"lm_head.weight": torch.ones(1)} | ({"lm_head.bias": torch.ones(1)} if biased else {}))
    assert config.lm_head_bias is biased


def test_frequencies_are_names_of_a_table_and_no_weights_of_ours() -> None:
    assert frequency_names(ROW) == [("model.position.inv_freq", "esm.rotary_embeddings.inv_freq")]
    config = tiny.encoder(position="rope")
    weights = implied(config, ROW)
    assert list(weights) == ["model.position.inv_freq"] and torch.equal(*weights.values(), frequencies(config))
    assert implied(tiny.encoder(), ROW) == {} == implied(config, ROW[1:])
    observe(config, weights)
    assert weights == {} and "inv_freq_dtype" not in config.rope_parameters
