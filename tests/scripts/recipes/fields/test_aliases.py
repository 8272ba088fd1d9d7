"""Keys that people type: every alias stands for fields, every field for itself, and a near miss is suggested."""

import pytest
from transformers import PreTrainedConfig

from qkv.configuration.configuration_base import model_configs
from qkv.configuration.earlier_names import EARLIER_NAMES
from qkv.scripts.recipes.fields import aliases
from qkv.scripts.recipes.fields.aliases import ALIASES, fields_of
from qkv.scripts.recipes.fields.keys import config_meanings, recipe_fields
from qkv.scripts.recipes.loading import load


def test_an_alias_stands_for_fields_and_is_none() -> None:
    assert len(ALIASES) <= 30 and not ALIASES.keys() & (recipe_fields().keys() | config_meanings().keys())
    for alias, fields in ALIASES.items():
        assert fields_of(alias.replace("_", "-")) == fields.split()
        assert all(
            name in recipe_fields() or name.removeprefix("model.") in config_meanings() for name in fields.split()
        )


def test_every_field_is_its_own_key() -> None:
    assert all(fields_of(key) == [key] for key in recipe_fields())
    for name in config_meanings().keys() - {key.rpartition(".")[2] for key in recipe_fields()}:
        assert fields_of(name) == fields_of(f"model.{name}") == [f"model.{name}"]


def test_config_fields_are_read_from_the_source() -> None:
    known = {name for config in model_configs() for name in config.known_fields()} - EARLIER_NAMES.keys()
    assert known - PreTrainedConfig.__dataclass_fields__.keys() <= config_meanings().keys() <= known


def test_an_alias_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    aliases.say_once.cache_clear()
    for _ in range(2):
        recipe = load("docs-lm", ["lr=3e-4", "seed=2", "layers=2", "dropout=0.1", "length=64"])
    assert (recipe.optimization.learning_rate, recipe.seed, recipe.text.length) == (3e-4, 2, 64)
    rates = dict.fromkeys(("embedding_dropout", "attention_dropout", "residual_dropout"), 0.1)
    assert {"num_hidden_layers": 2, **rates}.items() <= recipe.model.config.items()
    assert len(capsys.readouterr().err.splitlines()) == 4


@pytest.mark.parametrize("key", [key for key in recipe_fields() if len(key) > 6 and "." not in key])
def test_a_key_without_a_letter_is_suggested(key: str) -> None:
    with pytest.raises(ValueError, match=repr(key)):
        fields_of(key[:3] + key[4:])


@pytest.mark.parametrize(("typed", "hint"), [("positon", "model.position"), ("folder", "--help"), ("zzz", "--help")])
def test_only_a_like_key_is_suggested(typed: str, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        fields_of(typed)
