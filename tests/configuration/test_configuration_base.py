"""What every config does: check, copy, save, load, and know where its models are, all of it without torch."""

import ast
import copy
import json
import pickle
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, GenerationConfig, PreTrainedConfig
from transformers.testing_utils import CaptureLogger

import qkv
from checkout import python_files
from errors import raises_sentence
from qkv import QkvDecoderConfig, QkvEncoderConfig, QkvEncoderDecoderConfig, QkvRecurrentConfig, presets
from qkv.configuration import CONFIGS
from qkv.configuration.configuration_base import QkvConfig, checked, logger
from qkv.configuration.fields import literal_words
from qkv.modeling.registration import SEVERAL

each_config = pytest.mark.parametrize("config_class", CONFIGS)
# One of each kind that has something of its own to lose on the way to disk and back.
SAVED = {
    "encoder": QkvEncoderConfig,
    "decoder": QkvDecoderConfig,
    "encoder-decoder": QkvEncoderDecoderConfig,
    "recurrent": lambda: QkvRecurrentConfig(cell="lstm", attention="dot", hidden_size=8),
    "labels": lambda: QkvEncoderConfig(
        id2label={0: "cat", 1: "dog", 2: "eel"}, label2id={"cat": 0, "dog": 1, "eel": 2}
    ),
    "image": lambda: presets.vit_base_16(image_size=(32, 48), class_token=False, pooling="mean"),
    "rope": presets.llama_3_2_1b,
    "patterns": lambda: QkvDecoderConfig(
        num_hidden_layers=2, pattern=["full", "sliding"], sliding_window=3, dtype="bfloat16"
    ),
    "parts": lambda: presets.t5_small(encoder={"num_hidden_layers": 2}, decoder={"num_key_value_heads": 4}),
    "extras": lambda: QkvEncoderConfig(license="apache-2.0", notes={"seed": 3}),
}
each_saved = pytest.mark.parametrize("name", SAVED)


@each_saved
def test_saved_and_loaded_is_equal(name: str, tmp_path: Path) -> None:
    config = SAVED[name]()
    config.save_pretrained(tmp_path)
    for loaded in (type(config).from_pretrained(tmp_path), AutoConfig.from_pretrained(tmp_path)):
        assert type(loaded) is type(config)
        assert {**loaded.to_dict(), "_name_or_path": ""} == config.to_dict()
    # All of it is in the file, and saving what was loaded writes the same file.
    written = (tmp_path / "config.json").read_text()
    loaded.save_pretrained(tmp_path)
    assert (tmp_path / "config.json").read_text() == written


@each_saved
def test_dict_json_copies_and_pickles_are_equal(name: str) -> None:
    config = SAVED[name]()
    expected = config.to_dict()
    for twin in (copy.copy(config), copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert type(twin) is type(config)
        assert twin == config
        assert twin.to_dict() == expected
    for text in (config.to_json_string(), config.to_json_string(use_diff=False)):
        assert type(config).from_dict(json.loads(text)).to_dict() == expected
    assert type(config)(**expected).to_dict() == expected


@each_config
def test_deep_copy_is_independent(config_class: type[QkvConfig]) -> None:
    config = config_class(id2label={0: "a", 1: "b"})
    twin = copy.deepcopy(config)
    twin.id2label[0] = "c"
    twin.auto_map.clear()
    assert config.id2label[0] == "a"
    assert config.auto_map


@each_config
def test_saved_file_names_every_class(config_class: type[QkvConfig], tmp_path: Path) -> None:
    config_class().save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())["auto_map"]
    assert saved == config_class.auto_classes
    for reference in saved.values():
        found = getattr(qkv, reference.split(".")[1])
        assert found is config_class or found.config_class is config_class


def test_auto_maps_name_every_public_model() -> None:
    named = {reference.split(".")[1] for config_class in CONFIGS for reference in config_class.auto_classes.values()}
    several = {name for names in SEVERAL.values() for name in names}
    assert named | several == {name for name in qkv.__all__ if name.startswith("Qkv")}


@each_config
def test_parts_of_a_config_name_no_classes_of_their_own(config_class: type[QkvConfig]) -> None:
    assert all("auto_map" not in getattr(config_class(), part).to_dict() for part in config_class.sub_configs)


def test_what_hugging_face_adds_passes() -> None:
    extras = {"num_labels": 3, "output_attentions": True, "name_or_path": "x", "transformers_version": "4.0"}
    saved = {"_name_or_path": "x", "_commit_hash": "0", "torch_dtype": "float16", "quantization_config": {"bits": 8}}
    generation = {"max_length": 20, "num_beams": 2, "temperature": 0.5}
    config = QkvDecoderConfig(**extras, **saved, **generation, cls_token_id=3, base_model_name_or_path="y")
    assert (config.num_labels, config.output_attentions, config.dtype) == (3, True, torch.float16)
    assert config.quantization_config == {"bits": 8}
    assert config.base_model_name_or_path == "y"
    assert "num_beams" not in config.to_dict()


@each_config
def test_what_saved_configs_hold_for_generation_is_no_misspelling(config_class: type[QkvConfig]) -> None:
    for name in GenerationConfig._get_default_generation_params():
        config_class.check_spelling(name)


def test_number_and_names_of_labels() -> None:
    assert QkvEncoderConfig().num_labels == 2
    assert QkvEncoderConfig(num_labels=3).id2label == {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}
    assert QkvEncoderConfig(id2label={"0": "a", "1": "b", "2": "c"}).num_labels == 3


@pytest.mark.parametrize("dtype", [5, {"encoder": 0.5}, {"encoder": "float33"}])
def test_dtypes_are_words(dtype: Any) -> None:
    with pytest.raises(ValueError, match=r"^dtype=.* is not one of float16, bfloat16"):
        QkvEncoderConfig(dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", torch.float64])
def test_dtype(dtype: Any, tmp_path: Path) -> None:
    config = QkvEncoderConfig(dtype=dtype)
    assert isinstance(config.dtype, torch.dtype)
    config.save_pretrained(tmp_path)
    assert QkvEncoderConfig.from_pretrained(tmp_path).dtype == config.dtype
    assert QkvEncoderConfig.from_pretrained(tmp_path, dtype="float16").dtype == torch.float16
    assert QkvEncoderConfig.from_pretrained(tmp_path, dtype="auto").dtype == config.dtype


def test_attention_implementation_reaches_the_parts_and_is_not_saved(tmp_path: Path) -> None:
    config = QkvEncoderDecoderConfig(attn_implementation="eager")
    assert {part._attn_implementation for part in (config, config.encoder, config.decoder)} == {"eager"}
    config.save_pretrained(tmp_path)
    assert "attn_implementation" not in (tmp_path / "config.json").read_text()
    assert (
        QkvEncoderDecoderConfig.from_pretrained(tmp_path, attn_implementation="sdpa").encoder._attn_implementation
        == "sdpa"
    )


def test_weights_may_be_asked_for_under_every_implementation(tmp_path: Path) -> None:
    config = QkvEncoderConfig(attn_implementation="sdpa", output_attentions=True)
    config.output_attentions = True
    config.save_pretrained(tmp_path)
    assert config._attn_implementation == "sdpa"


def test_changes_on_loading_are_those_of_construction(tmp_path: Path) -> None:
    presets.vit_base_16().save_pretrained(tmp_path)
    config, unused = qkv.QkvImageEncoderConfig.from_pretrained(
        tmp_path, image_size=32, num_labels=3, revised=True, return_unused_kwargs=True
    )
    assert (config.grid, config.max_position_embeddings, config.num_labels) == ((2, 2), 5, 3)
    assert unused == {"revised": True}


@pytest.mark.parametrize("name", ["batch_norm_eps", "batch_size", "hiden_size", "layer_norm_eps", "max_seq_length"])
@pytest.mark.parametrize("config_class", [QkvEncoderConfig, QkvEncoderDecoderConfig], ids=lambda each: each.__name__)
def test_what_is_saved_is_read_again_and_what_is_typed_is_checked(
    config_class: type[QkvConfig], name: str, tmp_path: Path
) -> None:
    """A program that sets an attribute of its own must not lock the model up."""
    config = config_class()
    setattr(config, name, 7)
    config.save_pretrained(tmp_path)
    with CaptureLogger(logger) as warnings:
        loaded = config_class.from_pretrained(tmp_path)
    assert getattr(loaded, name) == 7 and loaded.to_dict() == config.to_dict()
    for typed in (lambda: config_class(**{name: 7}), lambda: config_class.from_pretrained(tmp_path, **{name: 7})):
        try:
            typed()
        except ValueError as error:
            assert f"{error}; {name}=7 of the saved config is kept and changes nothing" in warnings.out
        else:
            assert not warnings.out


def test_loading_takes_its_part_out_of_a_composite(tmp_path: Path) -> None:
    config = QkvEncoderDecoderConfig(encoder={"num_hidden_layers": 3})
    config.save_pretrained(tmp_path)
    encoder = QkvEncoderConfig.from_pretrained(tmp_path)
    assert (encoder.model_type, encoder.num_hidden_layers) == ("qkv_encoder", 3)
    assert encoder.auto_map == QkvEncoderConfig.auto_classes


def test_a_subclass_is_checked_by_its_own_annotations() -> None:
    @checked
    class Child(QkvEncoderConfig):
        model_type = "qkv_child"
        depth: int = 3

        def validate_depth(self) -> None:
            if self.depth > 9:
                raise ValueError(f"depth={self.depth} must be at most 9")

    assert Child().depth == 3
    for fields_, mentions in (
        ({"depth": "x"}, ("depth='x'", "str", "int", "3")),
        ({"depth": 10}, ("depth=10", "9")),
        ({"dept": 1}, ("Child", "'dept'", "'depth'")),
        ({"norm_eps": 0}, ("norm_eps=0", "positive")),
    ):
        with raises_sentence(*mentions):
            Child(**fields_)


def test_words_are_found_inside_lists_and_options() -> None:
    types = {field.name: field.type for field in fields(QkvEncoderConfig)}
    assert literal_words(types["pattern"]) == (
        "full",
        "sliding",
        "dilated",
        "block_sparse",
        "random",
        "strided",
        "fixed",
        "row",
        "column",
        "convolutional",
    )
    assert literal_words(types["hidden_size"]) == ()


def own_fields(config_class: type[QkvConfig]) -> list[Any]:
    """The fields that our classes declare, not transformers'."""
    theirs = {field.name for field in fields(PreTrainedConfig)}
    return [field for field in fields(config_class) if field.name not in theirs]


@each_config
def test_fields_are_few_and_help_explains_each_with_type_and_default(config_class: type[QkvConfig]) -> None:
    for described in (config_class, *config_class.sub_configs.values()):
        assert len(own_fields(described)) <= 66
        for field in own_fields(described):
            default = field.default_factory() if callable(field.default_factory) else field.default
            line = rf"^    {field.name} \((.+), defaults to {re.escape(repr(default))}\): [A-Z]\w+ \S"
            assert re.search(line, re.sub(r"\n {8}", " ", described.__doc__), re.MULTILINE), field.name


FORBIDDEN = {"import_module", "__import__", "eval", "exec", "urlopen", "get_kernel", "get_class_from_dynamic_module"}


def test_no_value_of_a_config_becomes_code() -> None:
    # The package's registration imports modules by constant names, as its root does.
    for path in python_files("configuration", "modeling", apart=frozenset({"package", "registration.py"})):
        calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
        names = {getattr(call, "id", getattr(call, "attr", None)) for call in calls}
        assert not names & FORBIDDEN, path


@pytest.mark.parametrize(
    ("config_class", "field"),
    [(QkvEncoderConfig, "num_hidden_layers"), (QkvRecurrentConfig, "num_hidden_layers")]
    + [(config_class, "num_labels") for config_class in CONFIGS],
)
def test_what_lists_are_made_of_is_bounded(config_class: type[QkvConfig], field: str) -> None:
    """A billion layers or labels take the memory before a model is made."""
    with raises_sentence(f"{field}=1000000000", "at most"):
        config_class.from_dict({**config_class().to_dict(), field: 10**9})


def test_a_field_in_capitals_is_no_other_field() -> None:
    with raises_sentence("'NORM_FIRST'", "'norm_first'"):
        QkvEncoderConfig(NORM_FIRST=False)
