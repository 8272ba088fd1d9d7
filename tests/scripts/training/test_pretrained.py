"""Trainings from pretrained models: weights, config and class names are kept, and misfits refused."""

import json
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

import qkv
from qkv.scripts.data.pretrained import pretrained_classes, pretrained_folder
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.training.pretrained import load_pretrained, own_folder, pretrained_config
from recipes import recipe_of

SIZE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 11, "intermediate_size": 24}
CLASSIFIER = "QkvEncoderForSequenceClassification"
HEAD = {"num_labels": 3, "id2label": {0: "a", 1: "b", 2: "c"}}


def recipe(init: Path, **fields: object) -> Recipe:
    return recipe_of(architecture=CLASSIFIER, init=str(init), **fields)


def start(recipe: Recipe, **head: object) -> torch.nn.Module:
    architecture = getattr(qkv, recipe.model.architecture)
    return load_pretrained(recipe, architecture, pretrained_config(recipe, architecture, {**HEAD, **head}))


def saved(folder: Path, head: str = "MaskedLM", **fields: object) -> torch.nn.Module:
    """A pretrained model of another shape than any default, with weights that no start gives."""
    model = getattr(qkv, f"QkvEncoderFor{head}")(qkv.QkvEncoderConfig(**{**SIZE, "position": "rope", **fields}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("place", ["", "model"], ids=["a model folder", "a run"])
def test_new_head_keeps_all_pretrained_weights(place: str, tmp_path: Path, capsys) -> None:
    earlier = saved(tmp_path / place)
    model = start(recipe(tmp_path, model={"hidden_size": 64, "classifier_dropout": 0.3}))
    assert model.config.position == "rope" and model.config.hidden_size == 16
    assert model.config.classifier_dropout == 0.3 and model.config.id2label == {0: "a", 1: "b", 2: "c"}
    for name, value in earlier.model.state_dict().items():
        assert torch.equal(model.model.state_dict()[name], value), name
    said, count = capsys.readouterr().err, len(model.state_dict())
    assert f"{count - 2} of {count} tensors" in said and "classifier.bias" in said and "hidden_size=16 (not 64)" in said


def test_parts_of_a_config_keep_their_shape(tmp_path: Path, capsys) -> None:
    part = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "head_dim": 6}
    config = qkv.QkvDualEncoderConfig(text_config={**part, "vocab_size": 11}, vision_config=part, projection_dim=8)
    qkv.QkvDualEncoderModel(config).save_pretrained(tmp_path)
    wanted = {"text_config": {"head_dim": 8, "attention_dropout": 0.3}, "projection_dim": 8}
    own = pretrained_config(recipe_of(init=str(tmp_path), model=wanted), qkv.QkvDualEncoderModel, {})
    assert (own.text_config.head_dim, own.text_config.attention_dropout, own.vision_config.head_dim) == (6, 0.3, 6)
    assert "text_config.head_dim=6 (not 8)\n" in capsys.readouterr().err


def test_same_head_is_kept_whole(tmp_path: Path, capsys) -> None:
    earlier = saved(tmp_path, "SequenceClassification", **HEAD, pooling="dense")
    model = start(recipe(tmp_path))
    assert all(torch.equal(value, earlier.state_dict()[name]) for name, value in model.state_dict().items())
    count = len(model.state_dict())
    assert f"{count} of {count} tensors" in capsys.readouterr().err
    assert pretrained_classes(str(tmp_path), ["c"]) == ["a", "b", "c"]
    start(recipe(tmp_path, model={"pooling": "mean"}))
    assert "model.pooler.dense.bias, model.pooler.dense.weight" in capsys.readouterr().err


@pytest.mark.parametrize("stock_class", [BertForMaskedLM, BertForSequenceClassification])
def test_stock_model_is_converted(stock_class: type, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own_folder.cache_clear()
    stock = stock_class(BertConfig(**SIZE, max_position_embeddings=20)).eval()
    stock.save_pretrained(tmp_path)
    model = start(recipe(tmp_path), **{"pooling": "first"} if stock_class is BertForMaskedLM else {}).eval()
    ids = torch.randint(0, 11, (2, 7))
    expected = stock.bert(ids).last_hidden_state
    torch.testing.assert_close(model.model(ids).last_hidden_state, expected, rtol=0, atol=1e-5)
    (certificate,) = (tmp_path / "cache").rglob("certificate.json")
    assert json.loads(certificate.read_text())["passed"] and str(certificate) in capsys.readouterr().err


def test_missing_tensors_are_refused_unless_allowed(tmp_path: Path) -> None:
    model = saved(tmp_path)
    weights = {name: value for name, value in model.state_dict().items() if "layers.1.self_attn." not in name}
    model.save_pretrained(tmp_path, state_dict=weights)
    with pytest.raises(ValueError, match=r"model\.layers\.1.*partial_init=true"):
        start(recipe(tmp_path))
    assert all(value.isfinite().all() for value in start(recipe(tmp_path, partial_init=True)).state_dict().values())


def test_misfits_are_refused(tmp_path: Path) -> None:
    qkv.QkvDecoderForCausalLM(qkv.QkvDecoderConfig(**SIZE)).save_pretrained(tmp_path / "decoder")
    with pytest.raises(ValueError, match=f"QkvDecoderConfig.*{CLASSIFIER}.*QkvDecoderForCausalLM"):
        start(recipe(tmp_path / "decoder"))
    saved(tmp_path, position="learned", max_position_embeddings=20)
    assert start(recipe(tmp_path), max_position_embeddings=20).config.max_position_embeddings == 20
    with pytest.raises(ValueError, match=r"text\.length=20"):
        start(recipe(tmp_path), max_position_embeddings=21)
    (tmp_path / "empty").mkdir()
    for place, named in ((tmp_path / "empty", "config.json"), ("./missing", "missing")):
        with pytest.raises(ValueError, match=f"init=.*{named}"):
            pretrained_folder(str(place))
