"""Longer texts: what fitted before keeps its numbers, and stock transformers gives the same at any length."""

from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

import qkv
import tiny
from tiny import jitter

LENGTH = 48  # of the tiny models
LONGER = 4 * LENGTH + 5
TABLES = {
    "gpt2": lambda: qkv.QkvDecoderForCausalLM(tiny.decoder()),
    "bert": lambda: qkv.QkvEncoderForMaskedLM(tiny.encoder()),
}
OFFSET = {"roberta": lambda: qkv.QkvEncoderForMaskedLM(tiny.encoder(position_offset=2, type_vocab_size=1))}
ROTATIONS = {
    "llama": lambda: qkv.QkvDecoderForCausalLM(tiny.decoder("llama")),
    "modernbert": lambda: qkv.QkvEncoderForMaskedLM(tiny.encoder("modernbert")),
}


def built(name: str) -> Any:
    torch.manual_seed(0)
    return jitter((TABLES | OFFSET | ROTATIONS)[name]()).eval()


def ids(length: int) -> torch.Tensor:
    return torch.randint(4, tiny.VOCABULARY, (1, length), generator=torch.Generator().manual_seed(length))


@torch.no_grad()
def logits(model: PreTrainedModel, length: int) -> torch.Tensor:
    return model(ids(length)).logits


@pytest.mark.parametrize("name", TABLES | OFFSET)
def test_a_table_is_repeated_and_short_texts_keep_their_numbers(name: str) -> None:
    model = built(name)
    before, table, offset = logits(model, LENGTH), model.base_model.position.table, model.config.position_offset
    rows = table.weight.detach().clone()
    assert qkv.extend(model, LONGER) is model
    assert torch.equal(logits(model, LENGTH), before)
    assert table is model.base_model.position.table and table.num_embeddings == offset + LONGER
    for position in range(LONGER):
        assert torch.equal(table.weight[offset + position], rows[offset + position % LENGTH])
    assert logits(model, LONGER).isfinite().all()
    model(ids(LONGER), labels=ids(LONGER)).loss.backward()
    assert table.weight.grad is not None and table.weight.grad.shape == table.weight.shape


@pytest.mark.parametrize(
    ("name", "method"),
    [*((name, "copy") for name in TABLES), *(("llama", method) for method in ("yarn", "linear", "dynamic"))],
)
def test_stock_transformers_gives_the_same_at_any_length(name: str, method: Any) -> None:
    model = qkv.extend(built(name), LONGER, method)
    stock = qkv.to_transformers(model).eval()
    for length in (7, LENGTH, LENGTH + 1, LONGER):
        torch.testing.assert_close(logits(model, length), logits(stock, length), rtol=1e-5, atol=1e-5)
    again = qkv.from_transformers(stock)
    for field in ("max_position_embeddings", "rope_parameters"):
        assert getattr(again.config, field) == getattr(model.config, field)
    assert all(torch.equal(value, again.state_dict()[key]) for key, value in model.state_dict().items())


def test_only_layers_that_see_far_are_scaled() -> None:
    model = built("modernbert")
    near = dict(model.config.rope_of("sliding"))
    qkv.extend(model, LONGER, "yarn")
    assert model.config.rope_of("sliding") == near
    assert model.config.rope_of("full")["rope_type"] == "yarn"
    assert logits(model, LONGER).isfinite().all()


@pytest.mark.parametrize("method", ["yarn", "linear", "dynamic"])
def test_extending_twice_is_extending_once_and_dynamic_keeps_the_trained_length(method: Any) -> None:
    once, twice = built("llama"), built("llama")
    before = logits(once, LENGTH)
    qkv.extend(once, LONGER, method)
    if method == "dynamic":
        assert once.config.max_position_embeddings == LENGTH
        assert once.config.rope_parameters["factor"] == LONGER / LENGTH
        torch.testing.assert_close(logits(once, LENGTH), before, rtol=1e-5, atol=1e-5)
    else:
        qkv.extend(qkv.extend(twice, 2 * LENGTH, method), LONGER, method)
        assert once.config.to_dict() == twice.config.to_dict()


def test_each_part_of_a_model_is_extended(tmp_path: Any) -> None:
    model = qkv.QkvEncoderDecoderForConditionalGeneration(tiny.encoder_decoder("bart")).eval()
    qkv.extend(model, LONGER, "copy")
    with torch.no_grad():
        found = model(input_ids=ids(LONGER), decoder_input_ids=ids(LONGER)).logits
    model.save_pretrained(tmp_path)
    again = qkv.QkvEncoderDecoderForConditionalGeneration.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        assert torch.equal(again(input_ids=ids(LONGER), decoder_input_ids=ids(LONGER)).logits, found)
    clip = qkv.extend(qkv.QkvDualEncoderModel(tiny.dual_encoder()), LONGER)
    assert clip.config.text_config.max_position_embeddings == LONGER


@pytest.mark.parametrize(
    ("fields", "length", "method", "named"),
    [
        ({}, LENGTH, None, "max_position_embeddings"),
        ({}, LONGER, "yarn", "'yarn'"),
        ({}, LONGER, "yam", "'yam'"),
        ({"position": "alibi"}, LONGER, None, "'alibi'"),
        ({"position": "rope"}, LONGER, "copy", "'copy'"),
        ({"position": "rope", "rope_parameters": {"rope_type": "linear", "factor": 2.0}}, LONGER, "yarn", "'linear'"),
    ],
)
def test_what_cannot_be_extended_is_refused_and_stays(
    fields: dict[str, Any], length: int, method: Any, named: str
) -> None:
    model = qkv.QkvDecoderForCausalLM(tiny.decoder(**fields))
    before = model.config.to_dict()
    with pytest.raises(ValueError, match=named) as error:
        qkv.extend(model, length, method)
    assert "\n" not in str(error.value) and model.config.to_dict() == before


def test_no_part_is_extended_where_another_cannot_be() -> None:
    linear = {"rope_parameters": {"rope_type": "linear", "rope_theta": 10.0, "factor": 2.0}}
    config = tiny.encoder_decoder("deep", decoder={"num_key_value_heads": 2, **linear})
    model = qkv.QkvEncoderDecoderForConditionalGeneration(config)
    before = model.config.to_dict()
    with pytest.raises(ValueError, match="'linear'"):
        qkv.extend(model, LONGER, "yarn")
    assert model.config.to_dict() == before


def test_models_of_images_have_no_texts() -> None:
    with pytest.raises(ValueError, match="QkvImageEncoderModel"):
        qkv.extend(qkv.QkvImageEncoderModel(tiny.image_encoder()), LONGER)
