"""A config is the same after a file, JSON, a dict, a copy and a pickle, and names the classes that load its models."""

import ast
import copy
import inspect
import json
import pickle
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, PreTrainedModel
from transformers.testing_utils import CaptureLogger
from transformers.utils import logging

import qkv
from checkout import python_files
from errors import raises_sentence
from qkv import QkvDecoderConfig, QkvEncoderConfig, QkvEncoderDecoderConfig, presets
from qkv.configuration import CONFIGS
from qkv.configuration.configuration_base import ALIASES, QkvConfig, logger
from qkv.configuration.saved_config import check_saved_config
from qkv.modeling.registration import SEVERAL

LABELS = {"id2label": {"2": "eel", "0": "cat", "1": "dog"}, "label2id": {"cat": 0, "dog": 1, "eel": 2}}
PATTERNS = {"num_hidden_layers": 2, "pattern": ["full", "sliding"], "sliding_window": 3, "dtype": "bfloat16"}
ROPES = {"full": {"rope_theta": 10.0}, "sliding": {"rope_theta": 5e5, "rope_type": "linear", "factor": 2.0}}
# The defaults of each class, and fields that may get lost on the way.
SAVED = {config_class.__name__: config_class for config_class in CONFIGS} | {
    "labels": lambda: QkvEncoderConfig(**LABELS),
    "image": lambda: presets.vit_base_16(image_size=(32, 48), class_token=False, pooling="mean"),
    "sound": lambda: qkv.QkvAudioEncoderConfig(conv_kernel_sizes=(3,), conv_strides=(4,)),
    "rope": presets.llama_3_2_1b,
    "patterns": lambda: QkvDecoderConfig(**PATTERNS, position="rope", rope_parameters=ROPES),
    "parts": lambda: presets.t5_small(encoder={"num_hidden_layers": 2}, decoder={"num_key_value_heads": 4}),
    "texts and images": lambda: presets.clip_vit_b32(text_config={"pooling": "highest"}, embedding_chunk_size=4),
    "backbone": lambda: qkv.QkvDetectionConfig(backbone_config={"model_type": "resnet", "depths": [1, 1, 1, 1]}),
    "extras": lambda: QkvEncoderConfig.from_dict({"license": "apache-2.0", "notes": {"seed": 3}}),
}
each_saved = pytest.mark.parametrize("name", SAVED)


@each_saved
def test_saved_and_loaded_is_equal(name: str, tmp_path: Path) -> None:
    config = SAVED[name]()
    config.save_pretrained(tmp_path)
    for loaded in (type(config).from_pretrained(tmp_path), AutoConfig.from_pretrained(tmp_path)):
        assert type(loaded) is type(config)
        assert {**loaded.to_dict(), "_name_or_path": ""} == config.to_dict()
    written = (tmp_path / "config.json").read_text()
    loaded.save_pretrained(tmp_path)
    assert (tmp_path / "config.json").read_text() == written
    saved = json.loads(written)
    assert saved["auto_map"] == type(config).auto_classes
    assert all("auto_map" not in saved[part] for part in config.sub_configs)


@each_saved
def test_dict_json_copies_and_pickles_are_equal(name: str) -> None:
    config = SAVED[name]()
    expected = config.to_dict()
    for twin in (copy.copy(config), copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert type(twin) is type(config) and twin == config and twin.to_dict() == expected
    for text in (config.to_json_string(), config.to_json_string(use_diff=False)):
        assert type(config).from_dict(json.loads(text)).to_dict() == expected
    assert type(config)(**expected).to_dict() == expected


def test_configs_share_nothing() -> None:
    labels, patterns = {0: "a", 1: "b"}, ["full"] * 12
    for config_class in CONFIGS:
        config = config_class(id2label=labels)
        for other in (config_class(id2label=labels), copy.deepcopy(config)):
            other.id2label[0] = "c"
            other.auto_map.clear()
        assert config.id2label[0] == labels[0] == "a" and config.auto_map == config_class.auto_classes
    rope = {"rope_type": "linear", "factor": 2.0}
    both = QkvEncoderDecoderConfig(position="rope", rope_parameters=rope, pattern=patterns)
    both.encoder.rope_parameters["factor"], both.encoder.pattern[0] = 8.0, "block_sparse"
    assert (both.decoder.rope_parameters["factor"], rope["factor"]) == (2.0, 2.0)
    assert both.decoder.pattern[0] == patterns[0] == "full"


def test_auto_maps_name_every_public_model() -> None:
    named = {name for names in SEVERAL.values() for name in names}
    for config_class in CONFIGS:
        own = {reference.split(".")[1] for reference in config_class.auto_classes.values()}
        assert {getattr(getattr(qkv, name), "config_class", config_class) for name in own} == {config_class}
        named |= own
    assert named == {name for name in qkv.__all__ if name.startswith("Qkv")}


def test_hugging_face_s_additions_pass() -> None:
    extras = {"num_labels": 3, "output_attentions": True, "name_or_path": "x", "transformers_version": "4.0"}
    saved = {"_name_or_path": "x", "_commit_hash": "0", "torch_dtype": "float16", "quantization_config": {"bits": 8}}
    generation = {"max_length": 20, "num_beams": 2, "temperature": 0.5}
    config = QkvDecoderConfig(**extras, **saved, **generation, cls_token_id=3, base_model_name_or_path="y")
    assert (config.num_labels, config.output_attentions, config.dtype) == (3, True, torch.float16)
    assert config.quantization_config == {"bits": 8} and config.base_model_name_or_path == "y"
    assert "num_beams" not in config.to_dict()


def test_dtype(tmp_path: Path) -> None:
    for dtype, expected in (("bfloat16", torch.bfloat16), (torch.float64, torch.float64)):
        QkvEncoderConfig(dtype=dtype).save_pretrained(tmp_path)
        read = [QkvEncoderConfig.from_pretrained(tmp_path, dtype=given).dtype for given in ("auto", "float16")]
        assert read == [QkvEncoderConfig.from_pretrained(tmp_path).dtype, torch.float16] == [expected, torch.float16]


def test_attention_implementation_reaches_the_parts_and_is_not_saved(tmp_path: Path) -> None:
    config = QkvEncoderDecoderConfig(attn_implementation="sdpa", output_attentions=True)
    assert {part._attn_implementation for part in (config, config.encoder, config.decoder)} == {"sdpa"}
    config.save_pretrained(tmp_path)
    assert "attn_implementation" not in (tmp_path / "config.json").read_text()
    loaded = QkvEncoderDecoderConfig.from_pretrained(tmp_path, attn_implementation="eager")
    assert loaded.encoder._attn_implementation == "eager"


def test_changes_on_loading_are_those_of_construction(tmp_path: Path) -> None:
    presets.vit_base_16().save_pretrained(tmp_path)
    config, unused = qkv.QkvImageEncoderConfig.from_pretrained(
        tmp_path, image_size=32, num_labels=3, revised=True, return_unused_kwargs=True
    )
    assert (config.grid, config.max_position_embeddings, config.num_labels) == ((2, 2), 5, 3)
    assert unused == {"revised": True}


@pytest.mark.parametrize(("name", "near"), [("hiden_size", "'hidden_size'"), ("batch_size", None)])
@pytest.mark.parametrize("config_class", [QkvEncoderConfig, QkvEncoderDecoderConfig], ids=lambda each: each.__name__)
def test_a_saved_field_is_kept_and_a_typed_one_is_checked(
    config_class: type[QkvConfig], name: str, near: str | None, tmp_path: Path
) -> None:
    """A program that sets an attribute of its own must not lock the model up."""
    config = config_class()
    setattr(config, name, 7)
    config.save_pretrained(tmp_path)
    with CaptureLogger(logger) as warnings:
        loaded = config_class.from_pretrained(tmp_path)
    assert getattr(loaded, name) == 7 and loaded.to_dict() == config.to_dict()
    assert (f"{name}=7" in warnings.out) is (near is not None)
    for typed in (config_class, partial(config_class.from_pretrained, tmp_path)):
        with raises_sentence(repr(name), *([near] if near else [])):
            typed(**{name: 7})


@pytest.mark.parametrize("name", ["revised", "device", "foo"])
def test_an_unknown_change_of_a_saved_config_is_refused_unless_it_is_given_back(name: str, tmp_path: Path) -> None:
    QkvEncoderConfig().save_pretrained(tmp_path)
    with raises_sentence(repr(name)):
        AutoConfig.from_pretrained(tmp_path, **{name: 1})
    _, unused = AutoConfig.from_pretrained(tmp_path, return_unused_kwargs=True, **{name: 1})
    assert unused[name] == 1


def test_keywords_of_loading_a_model_pass(tmp_path: Path) -> None:
    """`transformers serve` gives them to AutoConfig; they are read where this release names them."""
    load: Any = PreTrainedModel.from_pretrained.__func__
    popped = re.findall(r"kwargs\.pop\(\"(\w+)\"", inspect.getsource(load))
    assert {"device_map", "dtype", "trust_remote_code"} <= {*popped}
    for name in {*popped, *inspect.signature(load).parameters} - {"cls", "kwargs", "model_args"}:
        if name not in ("pretrained_model_name_or_path", "dtype", "torch_dtype", "attn_implementation"):
            assert isinstance(QkvEncoderConfig.from_dict({}, **{name: None}), QkvEncoderConfig), name


@pytest.mark.parametrize(("alias", "field"), ALIASES.items())
def test_names_of_other_libraries_are_told_the_field(alias: str, field: str) -> None:
    kinds = [kind for kind in CONFIGS if field in kind.known_fields() and alias not in kind.known_fields()]
    assert kinds
    for kind in kinds:
        if not hasattr(kind, alias):
            with raises_sentence(repr(alias), repr(field)):
                kind(**{alias: 1})


EVIL = "evil/kernel"
LOADING: list[dict[str, Any]] = [
    {"attn_implementation": EVIL},
    {"_attn_implementation": f"paged|{EVIL}:name"},
    {"_attn_implementation_internal": "flash_attention_2"},
    {"attn_implementation": {"": EVIL}},
    {"backbone_config": {"attn_implementation": EVIL}},
    {"experts_implementation": "deep-gemm"},
    {"transformers_weights": "other.safetensors"},
]


@pytest.mark.parametrize("saved", LOADING, ids=str)
def test_a_saved_config_loads_no_code_and_no_other_weights(saved: dict[str, Any], tmp_path: Path) -> None:
    config = {**QkvEncoderConfig().to_dict(), **saved}
    (tmp_path / "config.json").write_text(json.dumps(config))
    ((name, value),) = next(iter(saved.values())).items() if "backbone_config" in saved else saved.items()
    for read in (AutoConfig.from_pretrained, QkvEncoderConfig.from_pretrained, check_saved_config):
        with raises_sentence(f"{name}={json.dumps(value)}"):
            read(config if read is check_saved_config else tmp_path)


def test_a_person_may_choose_a_kernel(tmp_path: Path) -> None:
    config = {**QkvEncoderConfig().to_dict(), "attn_implementation": "eager", "transformers_weights": None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert AutoConfig.from_pretrained(tmp_path)._attn_implementation == "eager"
    assert AutoConfig.from_pretrained(tmp_path, attn_implementation=EVIL)._attn_implementation == EVIL


def test_a_subclass_is_checked_by_its_annotations() -> None:
    class Child(QkvEncoderConfig):
        layerdrop: int = 3

        def validate_layerdrop(self) -> None:
            if self.layerdrop > 9:
                raise ValueError(f"layerdrop={self.layerdrop} must be at most 9")

    assert Child().layerdrop == 3
    for fields, mentions in (
        ({"layerdrop": "x"}, ("layerdrop='x'", "str", "int", "3")),
        ({"layerdrop": 10}, ("layerdrop=10", "9")),
        ({"layedrop": 1}, ("Child", "'layedrop'", "'layerdrop'")),
        ({"norm_eps": 0}, ("norm_eps=0", "positive")),
    ):
        with raises_sentence(*mentions):
            Child(**fields)


FORBIDDEN = {"import_module", "__import__", "eval", "exec", "urlopen", "get_kernel", "get_class_from_dynamic_module"}


def test_no_value_of_a_config_becomes_code() -> None:
    # The package's registration imports modules by constant names, as its root does.
    for path in python_files("configuration", "modeling", apart=frozenset({"package", "registration.py"})):
        calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
        names = {getattr(call, "id", getattr(call, "attr", None)) for call in calls}
        assert not names & FORBIDDEN, path


@pytest.mark.parametrize("saved", [{"norm_first": False}, {"norm_first": True, "query_key_norm": True}], ids=str)
def test_a_config_with_names_of_earlier_versions_is_read(saved: dict[str, Any]) -> None:
    saved = {**saved, "hidden_size": 16, "num_attention_heads": 2, "scale_embedding": True, "scale_logits": True}
    config = QkvDecoderConfig.from_dict({"model_type": "qkv_decoder", **saved})
    assert config.norm_position == ("before" if saved["norm_first"] else "after")
    assert config.final_norm == saved["norm_first"] and config.norm_first == saved["norm_first"]
    assert (config.embedding_multiplier, config.logit_scale) == (4.0, 0.25)
    assert config.query_key_norm == ("head" if saved.get("query_key_norm") else "none")
    assert not {*saved} & {"norm_first", "scale_embedding", "scale_logits"} & {*config.to_dict()}
    encoder = QkvEncoderConfig.from_dict({"scale_embedding": "token_dropout", "mask_token_id": 3})
    assert encoder.token_dropout and encoder.embedding_multiplier == 1.0


def test_a_name_of_earlier_versions_replaces_a_preset_and_says_so() -> None:
    with CaptureLogger(logging.get_logger("qkv.configuration.earlier_names")) as said:
        config = presets.bert_base(norm_first=True)
    assert config.norm_position == "before" and config.final_norm
    assert "norm_first=True" in said.out and "norm_position='after'" in said.out
