"""Layers are those around the attention of each stack, and what is observed of them is all there and nothing else."""

from typing import Any

import pytest
import torch

import qkv
import tiny
from families.attentions import FAMILIES, built
from qkv.scripts.probes.layers import (
    evaluating,
    hidden_of,
    model_layers,
    observed_forward,
    padding_mask,
    real_tokens,
    without_cache,
)


@pytest.mark.parametrize("name", [name for name in FAMILIES if "rnnsearch" not in name and "luong" not in name])
def test_every_stack_has_its_layers(name: str) -> None:
    model, batch, names = built(name)
    layers = model_layers(model)
    expected = [stack for stack in names if stack != "cross"]
    assert sorted({layer.stack for layer in layers}) == sorted(expected)
    for stack in expected:
        assert [layer.number for layer in layers if layer.stack == stack] == [0, 1]
    assert len({layer.module for layer in layers}) == len(layers)
    seen: list[Any] = []
    observed_forward(model, batch, lambda record: None, lambda layer, output: seen.append((layer, output)))
    assert [layer for layer, _ in seen] == sorted(layers, key=[layer for layer, _ in seen].index)
    assert all(hidden_of(output).ndim == 3 for _, output in seen)


def test_recurrent_networks_have_no_layers() -> None:
    assert model_layers(qkv.QkvRecurrentModel(tiny.recurrent())) == []


def test_dropout_is_off_meanwhile_and_what_was_off_stays_off() -> None:
    model = qkv.QkvDecoderModel(tiny.decoder()).train()
    model.layers[0].eval()
    with evaluating(model):
        assert not any(module.training for module in model.modules())
    assert model.training and model.layers[1].training and not model.layers[0].mlp.training


def test_caches_are_not_kept_where_there_are_some() -> None:
    batch = {"input_ids": torch.tensor([[5, 6]])}
    assert without_cache(qkv.QkvDecoderModel(tiny.decoder()), batch)["use_cache"] is False
    assert without_cache(qkv.QkvDecoderModel(tiny.decoder()), {**batch, "use_cache": True})["use_cache"] is True
    assert without_cache(qkv.QkvEncoderModel(tiny.encoder()), batch) == batch


def test_the_mask_of_each_stack() -> None:
    model: Any = qkv.QkvEncoderDecoderForConditionalGeneration(tiny.encoder_decoder())
    pairs, labels = tiny.pairs(), tiny.translations()
    assert padding_mask(model, "encoder", pairs) is pairs["attention_mask"]
    assert (
        padding_mask(model, "cross", pairs) is padding_mask(model, "decoder", pairs) is pairs["decoder_attention_mask"]
    )
    own = padding_mask(model, "decoder", labels)
    assert own is not None and torch.equal(own, labels["labels"] != -100)
    bare = {"input_ids": pairs["input_ids"], "decoder_input_ids": pairs["decoder_input_ids"]}
    assert padding_mask(model, "decoder", bare) is None
    clip, captions = qkv.QkvDualEncoderModel(tiny.dual_encoder()), tiny.captions()
    assert padding_mask(clip, "image", captions) is None
    assert padding_mask(clip, "text", captions) is captions["attention_mask"]


def test_real_tokens_with_padding_and_without() -> None:
    hidden = torch.arange(12.0).view(2, 3, 2)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    assert real_tokens(hidden, mask).tolist() == [[0, 1], [2, 3], [6, 7]]
    packed = hidden.flatten(0, 1)[None, :4]
    assert real_tokens(packed, mask).shape == (4, 2)
    assert real_tokens(hidden.half(), None).dtype == torch.float32
