"""Other names of fields: each resolves to fields there are, or is answered; near misses are suggested over all fields."""

import pytest
from transformers import PreTrainedConfig

from qkv.configuration.configuration_base import model_configs
from qkv.scripts.recipes.fields import aliases
from qkv.scripts.recipes.fields.aliases import (
    ALIASES,
    ANSWERS,
    NAMES,
    fields_of,
    options_as_words,
    resolve,
    resolve_for_config,
)
from qkv.scripts.recipes.fields.config_fields import config_fields
from qkv.scripts.recipes.fields.recipe_fields import recipe_fields
from qkv.scripts.recipes.loading import load


@pytest.mark.parametrize("fields", NAMES)
def test_a_name_stands_for_fields_there_are(fields: str) -> None:
    for field in fields.split():
        assert field in recipe_fields() or field.removeprefix("model.") in config_fields()


def test_a_name_stands_for_one_thing() -> None:
    names = [name for names in NAMES.values() for name in names.split()]
    assert len(names) == len(set(names))
    assert not {*ALIASES, *ANSWERS} & recipe_fields().keys() and not {*ALIASES, *ANSWERS} & config_fields()
    assert not ALIASES.keys() & ANSWERS.keys()


def test_every_field_is_its_own_name() -> None:
    for key in recipe_fields():
        assert fields_of(key) == [key]
    alone = {key.rpartition(".")[2] for key in recipe_fields()}
    for name in config_fields() - alone:
        assert fields_of(name) == fields_of(f"model.{name}") == [f"model.{name}"]


def test_config_fields_are_those_of_the_configs() -> None:
    known = {name for config in model_configs() for name in config.known_fields()}
    assert known - PreTrainedConfig.__dataclass_fields__.keys() <= config_fields() <= known


def test_dashes_are_underscores() -> None:
    for alias, fields in ALIASES.items():
        assert fields_of(alias.replace("_", "-")) == fields


@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_no_field_is_answered(name: str) -> None:
    with pytest.raises(ValueError) as error:
        load("digits", [f"{name}=1"])
    assert ANSWERS[name] in str(error.value) and repr(name) in str(error.value)


def test_what_was_typed_otherwise_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    aliases.say_once.cache_clear()
    typed = ["lr=3e-4", "seed=2", "layers=2", "model.heads=2", "dropout=0.1", "length=64"]
    for _ in range(2):
        recipe = load("docs-lm", typed)
    assert (recipe.optimization.learning_rate, recipe.seed, recipe.text.length) == (3e-4, 2, 64)
    rates = dict.fromkeys(("embedding_dropout", "attention_dropout", "residual_dropout"), 0.1)
    assert {"num_hidden_layers": 2, "num_attention_heads": 2, **rates}.items() <= recipe.model.config.items()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(typed) - 1 and said[0] == "qkv: lr=3e-4 is learning_rate=3e-4"


def test_fields_of_a_config_go_by_their_other_names_too(capsys: pytest.CaptureFixture[str]) -> None:
    aliases.say_once.cache_clear()
    typed = ["hidden=64", "model.position=rope", "dropout=0.1", "vocab_size=100", "norm-first=true", "lr=1", "zzz=1"]
    rates = ["embedding_dropout=0.1", "attention_dropout=0.1", "residual_dropout=0.1"]
    plain = ["hidden_size=64", "position=rope", *rates, "vocab_size=100", "norm_first=true", "learning_rate=1", "zzz=1"]
    assert resolve_for_config(typed) == plain
    assert "qkv: hidden=64 is hidden_size=64" in capsys.readouterr().err.splitlines()


def test_other_processes_are_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    aliases.say_once.cache_clear()
    monkeypatch.setenv("RANK", "1")
    assert resolve(["lr=1"]) == ["learning_rate=1"] and capsys.readouterr().err == ""


@pytest.mark.parametrize("key", [key for key in recipe_fields() if len(key) > 6 and "." not in key])
def test_a_letter_too_few_is_suggested(key: str) -> None:
    wrong = key[:3] + key[4:]
    with pytest.raises(ValueError, match=f"did you mean '{key}'"):
        fields_of(wrong)


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("positon", "did you mean 'model.position'?"),
        ("nlayers", "did you mean 'model.num_hidden_layers'?"),
        ("optimzer", "did you mean 'optimizer'?"),
        ("folder", "lists the fields"),  # like `encoder`, which is another thing
        ("size", "lists the fields"),
    ],
)
def test_only_what_is_much_alike_is_suggested(typed: str, hint: str) -> None:
    with pytest.raises(ValueError) as error:
        fields_of(typed)
    assert str(error.value).endswith(hint)


def test_options_that_a_command_does_not_know_are_fields() -> None:
    words = ["--debug", "digits", "--lr", "1e-3", "seed=1", "--epochs=2", "--streaming", "--also", "a", "init=b"]
    assert options_as_words(words, ["--debug", "--also"]) == [
        "--debug", "digits", "lr=1e-3", "epochs=2", "streaming=true", "seed=1", "--also", "a", "init=b",
    ]  # fmt: skip
