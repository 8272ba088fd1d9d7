"""Guesses for a model that is there already: its architecture, length and head, and a smaller learning rate."""

from pathlib import Path

import pytest

import own_runs
import stock_folders
from qkv.scripts.data.inference.own_recipe import infer
from qkv.scripts.recipes.schema import Recipe


def recipes(folder: Path, kind: str, init: Path, *words: str) -> tuple[Recipe, Recipe]:
    """What is inferred of rows without a pretrained model, and with one."""
    table = str(own_runs.data(kind, folder))
    return infer(table, words)[0], infer(table, [*words, f"init={init}"])[0]


def test_a_head_that_is_there_keeps_its_pooling_and_length(tmp_path: Path) -> None:
    new, started = recipes(tmp_path, "classes", stock_folders.bert(tmp_path / "bert"), "text.length=40")
    assert new.model.config["pooling"] == "mean" and started.model.config == {}
    assert started.text.length == 40, "what is typed stays"
    assert started.optimization.learning_rate == pytest.approx(new.optimization.learning_rate / 10)
    guessed = infer(str(tmp_path / "classes.jsonl"), [f"init={tmp_path / 'bert'}", "model.pooling=mean"])[0]
    assert guessed.text.length == stock_folders.POSITIONS and guessed.model.config == {"pooling": "mean"}


def test_a_new_head_pools_as_a_new_model_does(tmp_path: Path) -> None:
    new, started = recipes(tmp_path, "classes", stock_folders.masked_bert(tmp_path / "bert"))
    assert started.model.config["pooling"] == "mean" and "hidden_size" not in started.model.config
    assert started.model.architecture == new.model.architecture


@pytest.mark.parametrize(
    ("kind", "made", "head"),
    [
        ("classes", "gpt2", "DecoderForSequenceClassification"),
        ("texts", "gpt2", "DecoderForCausalLM"),
        ("texts", "bert", "EncoderForMaskedLM"),
        ("tags", "bert", "EncoderForTokenClassification"),
        ("images", "vit", "ImageEncoderForImageClassification"),
        ("images", "bert", "ImageEncoderForImageClassification"),  # which a training refuses
    ],
)
def test_the_architecture_is_that_of_the_pretrained_family(kind: str, made: str, head: str, tmp_path: Path) -> None:
    _, started = recipes(tmp_path, kind, getattr(stock_folders, made)(tmp_path / made))
    assert started.model.architecture == f"Qkv{head}"


def test_an_architecture_that_is_asked_for_gets_fields_of_its_own(tmp_path: Path) -> None:
    recipe, _ = infer(str(own_runs.data("classes", tmp_path)), ["architecture=QkvDecoderForSequenceClassification"])
    assert recipe.model.config["hidden_size"] == 128 and "pooling" not in recipe.model.config
    odd, _ = infer(str(tmp_path / "classes.jsonl"), ["architecture=QkvNothing"])
    assert odd.model.config["pooling"] == "mean"
