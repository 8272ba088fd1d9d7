"""Fields of configs read from their source: type words, defaults, parts and meanings are those of the classes."""

from dataclasses import MISSING, Field

import pytest

from qkv.configuration.configuration_base import QkvConfig, model_configs
from qkv.configuration.docstrings import EXPLAINED
from qkv.configuration.fields import literal_words
from qkv.scripts.recipes.fields.config_fields import config_of, families, fields_of_config, parts

CONFIGS = model_configs()  # now, before other tests make configs of their own
each_config = pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.__name__)


def default(field: Field) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


@each_config
def test_fields_have_the_defaults_and_words_of_their_class(config: type[QkvConfig]) -> None:
    own = config.__dataclass_fields__
    for name, field in fields_of_config(config.__name__).items():
        assert (name, field.default) == (name, default(own[name]))
        assert field.words == tuple(word for word in literal_words(own[name].type) if isinstance(word, str))


@each_config
def test_every_field_that_may_be_set_is_read_with_its_meaning(config: type[QkvConfig]) -> None:
    meanings = [EXPLAINED[base] for base in reversed(config.__mro__) if base in EXPLAINED]
    explained = {name: meaning for own in meanings for name, meaning in own.items()}
    settable = {name for name in explained if not isinstance(getattr(config, name, None), property)}
    read = {name: field.meaning for name, field in fields_of_config(config.__name__).items()}
    assert read.items() <= explained.items()
    constant = {name for name, field in config.__dataclass_fields__.items() if "ClassVar" in str(field.type)}
    assert read.keys() == settable - constant


def test_families_and_parts_are_those_of_the_package() -> None:
    assert set(families()) == {config.__name__ for config in CONFIGS}
    for config in CONFIGS:
        assert parts(config.__name__) == {name: part.__name__ for name, part in config.sub_configs.items()}
    assert config_of("QkvSpeechEncoderDecoderForSpeechSeq2Seq") == "QkvSpeechEncoderDecoderConfig"


@pytest.mark.parametrize(
    ("config", "field", "takes"),
    [
        ("QkvDecoderConfig", "norm_eps", "number"),
        ("QkvDecoderConfig", "head_dim", "whole number or null"),
        ("QkvDecoderConfig", "norm", "layer or rms"),
        ("QkvDecoderConfig", "attention_bias", "true or false or a list of q_proj, k_proj, v_proj or o_proj"),
        ("QkvImageEncoderConfig", "image_size", "whole number or a list"),
    ],
)
def test_a_type_is_said_in_words(config: str, field: str, takes: str) -> None:
    assert fields_of_config(config)[field].takes == takes


@each_config
def test_the_words_of_a_field_are_named_where_it_is_explained(config: type[QkvConfig]) -> None:
    fields = fields_of_config(config.__name__).values()
    unnamed = {field.name: {word for word in field.words if f"`{word}`" not in field.meaning} for field in fields}
    listed = {"attention_bias", *(name for name in unnamed if name.endswith("_act"))}  # in `takes` alone
    assert {name: words for name, words in unnamed.items() if words and name not in listed} == {}
