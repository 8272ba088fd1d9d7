"""What a user can get wrong, and the one sentence that says so: what, got, expected, how to mend."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, GPT2Config, PreTrainedModel

from qkv import (
    QkvDecoderConfig,
    QkvDecoderForCausalLM,
    QkvDecoderForQuestionAnswering,
    QkvDecoderModel,
    QkvEncoderConfig,
    QkvEncoderDecoderConfig,
    QkvEncoderDecoderForConditionalGeneration,
    QkvEncoderForImageClassification,
    QkvEncoderForMaskedImageModeling,
    QkvEncoderForMaskedLM,
    QkvEncoderForMultipleChoice,
    QkvEncoderForPreTraining,
    QkvEncoderForQuestionAnswering,
    QkvEncoderForSequenceClassification,
    QkvEncoderForTokenClassification,
    QkvEncoderModel,
    presets,
)
from qkv.configuration.axes import PatternName, PositionName
from qkv.modeling.kernel import refuse_lost_scores

NAN, INF = float("nan"), float("inf")


def complaint(mistake: Callable[[], Any]) -> str:
    """The sentence that a mistake is answered with: a plain ValueError of one line, with no wrappers around it."""
    with pytest.raises(ValueError) as caught:
        mistake()
    assert type(caught.value) is ValueError
    assert caught.value.__cause__ is None
    message = str(caught.value)
    assert "\n" not in message and "Validation error" not in message and not message.endswith(".")
    return message


POSITIONS, PATTERNS = (", ".join(get_args(axis)) for axis in (PositionName, PatternName))
ACTIVATIONS = "relu, gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, gelu_bloom, quick_gelu, silu, tanh, sigmoid"
ROPE = "rope_parameters"
DTYPES = "float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2"
PROBLEMS = "regression, single_label_classification, multi_label_classification"


def unknown(name: str, meant: str, family: str = "QkvEncoderConfig") -> str:
    return f"{family} has no field {name!r}; did you mean {meant!r}?"


def rope(**parameters: Any) -> dict[str, Any]:
    return {"position": "rope", "rope_parameters": parameters}


ENCODERS: list[tuple[dict[str, Any], str]] = [
    # misspelt fields
    ({"hiden_size": 8}, unknown("hiden_size", "hidden_size")),
    ({"num_layers": 2}, unknown("num_layers", "num_hidden_layers")),
    ({"num_attention_head": 2}, unknown("num_attention_head", "num_attention_heads")),
    ({"layer_norm_eps": 1e-5}, unknown("layer_norm_eps", "norm_eps")),
    ({"label_smoothing_factor": 0.1}, unknown("label_smoothing_factor", "label_smoothing")),
    ({"attention_pattern": ["full"]}, unknown("attention_pattern", "attention_patterns")),
    ({"vocabsize": 5}, unknown("vocabsize", "vocab_size")),
    ({"img_size": 5}, unknown("img_size", "image_size")),
    # wrong words
    ({"position": "ropee"}, f"position='ropee' is not one of {POSITIONS}; did you mean 'rope'?"),
    ({"position": "absolute"}, f"position='absolute' is not one of {POSITIONS}"),
    ({"pattern": "slidng"}, f"pattern='slidng' is not one of {PATTERNS}; did you mean 'sliding'?"),
    ({"kernel": "linear"}, "kernel='linear' is not one of softmax"),
    ({"norm": "layernorm"}, "norm='layernorm' is not one of layer, rms; did you mean 'layer'?"),
    ({"feed_forward": "moe"}, "feed_forward='moe' is not one of mlp, glu"),
    ({"hidden_act": "swish"}, f"hidden_act='swish' is not one of {ACTIVATIONS}"),
    ({"hidden_act": "gelu_neww"}, f"hidden_act='gelu_neww' is not one of {ACTIVATIONS}; did you mean 'gelu_new'?"),
    ({"frontend": "images"}, "frontend='images' is not one of tokens, patches, spectrogram"),
    (
        {"pooling": "mena"},
        "pooling='mena' is not one of first, dense, mean, distilled, first_mean, first_norm, end, highest; did you mean 'mean'?",
    ),
    ({"dtype": "float23"}, f"dtype='float23' is not one of {DTYPES}; did you mean 'float32'?"),
    ({"problem_type": "regresion"}, f"problem_type='regresion' is not one of {PROBLEMS}; did you mean 'regression'?"),
    (
        {"num_hidden_layers": 2, "attention_patterns": ["full", "fall"]},
        f"attention_patterns='fall' is not one of {PATTERNS}; did you mean 'full'?",
    ),
    # wrong types
    ({"hidden_size": "8"}, "hidden_size='8' is of type str, expected int; its default is 768"),
    ({"hidden_size": 8.0}, "hidden_size=8.0 is of type float, expected int; its default is 768"),
    ({"hidden_size": True}, "hidden_size=True is of type bool, expected int; its default is 768"),
    ({"num_hidden_layers": None}, "num_hidden_layers=None is of type NoneType, expected int; its default is 12"),
    ({"norm_first": 1}, "norm_first=1 is of type int, expected bool; its default is True"),
    ({"norm_eps": "1e-5"}, "norm_eps='1e-5' is of type str, expected float or int; its default is 1e-05"),
    ({"attention_dropout": True}, "attention_dropout=True is of type bool, expected float or int; its default is 0.0"),
    ({"head_dim": 2.5}, "head_dim=2.5 is of type float, expected int or None; its default is None"),
    (
        {"position": 3},
        f"position=3 is of type int, expected Literal{list(get_args(PositionName))}; its default is 'learned'",
    ),
    (
        {"attention_patterns": "full"},
        f"attention_patterns='full' is of type str, expected list[Literal{list(get_args(PatternName))}] or None; its "
        "default is None",
    ),
    (
        {"position": "rope", "rope_parameters": "linear"},
        "rope_parameters='linear' is of type str, expected RopeParameters, dict[str, Any] or None; its default is None",
    ),
    ({"num_labels": "3"}, "num_labels='3' must be a whole number of at least 1"),
    ({"id2label": ["cat"]}, "id2label=['cat'] is not a dict of numbers and labels such as {0: 'cat'}"),
    # wrong sizes
    ({"hidden_size": 0}, "hidden_size=0 must be at least 1"),
    ({"hidden_size": -8}, "hidden_size=-8 must be at least 1"),
    ({"num_hidden_layers": 0}, "num_hidden_layers=0 must be at least 1"),
    ({"num_attention_heads": 0}, "num_attention_heads=0 must be at least 1"),
    ({"num_key_value_heads": 0}, "num_key_value_heads=0 must be at least 1"),
    ({"head_dim": -4}, "head_dim=-4 must be at least 1"),
    ({"intermediate_size": 0}, "intermediate_size=0 must be at least 1"),
    ({"vocab_size": 0}, "vocab_size=0 must be at least 1"),
    ({"type_vocab_size": -1}, "type_vocab_size=-1 must be at least 0"),
    ({"max_position_embeddings": 0}, "max_position_embeddings=0 must be at least 1"),
    ({"position_offset": -1}, "position_offset=-1 must be at least 0"),
    ({"block_size": 0}, "block_size=0 must be at least 1"),
    ({"patch_size": 0}, "patch_size=0 must be at least 1"),
    ({"num_channels": 0}, "num_channels=0 must be at least 1"),
    ({"num_labels": 0}, "num_labels=0 must be a whole number of at least 1"),
    # numbers that cannot be
    ({"norm_eps": 0}, "norm_eps=0 must be positive and finite"),
    ({"norm_eps": NAN}, "norm_eps=nan must be positive and finite"),
    ({"attention_multiplier": INF}, "attention_multiplier=inf must be positive and finite"),
    ({"attention_multiplier": 0}, "attention_multiplier=0 must be positive and finite"),
    ({"initializer_range": -0.02}, "initializer_range=-0.02 must be positive and finite"),
    ({"attention_dropout": 1.0}, "attention_dropout=1.0 must lie in [0, 1), for example 0.1"),
    ({"residual_dropout": -0.1}, "residual_dropout=-0.1 must lie in [0, 1), for example 0.1"),
    ({"embedding_dropout": NAN}, "embedding_dropout=nan must lie in [0, 1), for example 0.1"),
    ({"activation_dropout": 2}, "activation_dropout=2 must lie in [0, 1), for example 0.1"),
    ({"classifier_dropout": 10}, "classifier_dropout=10 must lie in [0, 1), for example 0.1"),
    ({"drop_path_rate": 1}, "drop_path_rate=1 must lie in [0, 1), for example 0.1"),
    ({"label_smoothing": 1.0}, "label_smoothing=1.0 must lie in [0, 1), for example 0.1"),
    # what does not go together
    ({"num_key_value_heads": 5}, "num_attention_heads=12 must be a multiple of num_key_value_heads=5"),
    (
        {"hidden_size": 10, "num_attention_heads": 3},
        "hidden_size=10 is not a multiple of num_attention_heads=3; set head_dim",
    ),
    ({"position": "rope", "head_dim": 3}, "position='rope' rotates pairs, so head_dim=3 must be even"),
    (
        {"position": "sinusoidal", "hidden_size": 9, "num_attention_heads": 3},
        "position='sinusoidal' pairs sines with cosines, so hidden_size=9 must be even",
    ),
    (
        {"attention_patterns": ["full"]},
        "attention_patterns has 1 entries for num_hidden_layers=12; give one word for each layer",
    ),
    (
        {"attention_patterns": []},
        "attention_patterns has 0 entries for num_hidden_layers=12; give one word for each layer",
    ),
    ({"pattern": "sliding"}, "pattern='sliding' needs sliding_window >= 1 (the token itself counts), got None"),
    ({"pattern": "sliding", "sliding_window": 0}, "sliding_window=0 must be at least 1"),
    (
        {"pattern": "convolutional", "grid_kernel": 4},
        "pattern='convolutional' has a token in the middle of its window, so grid_kernel=4 must be odd",
    ),
    (
        {"position": "grid", "text_length": 512},
        "position='grid' has rows after its text, so max_position_embeddings=512 must exceed text_length=512",
    ),
    ({"relative_attention_num_buckets": 5}, "relative_attention_num_buckets=5 must be even and at least 4"),
    (
        {"relative_attention_max_distance": 32},
        "relative_attention_max_distance=32 must exceed relative_attention_num_buckets=32",
    ),
    (
        {"frontend": "patches", "image_size": 225},
        "image_size=225 is not a multiple of patch_size=16; resize or repatch",
    ),
    (
        {"image_size": (8, 8, 3)},
        "image_size=(8, 8, 3) is of type tuple, expected int, list[int] or tuple[int, int]; its default is 224",
    ),
    ({"image_size": [8]}, "image_size=[8] must be a side or (height, width) in pixels"),
    ({"image_size": 0}, "image_size=0 must be a side or (height, width) in pixels"),
    (
        {"frontend": "patches", "class_token": False},
        "pooling='first' reads the class token: set class_token=True or pooling='mean'",
    ),
    (
        {"frontend": "patches", "pooling": "distilled"},
        "pooling='distilled' needs frontend='patches' with class_token and distillation_token",
    ),
    # what is not the user's to say
    (
        {"layer_types": ["full_attention"] * 12},
        "layer_types is derived here; set attention_patterns, one pattern word for each layer",
    ),
    ({"causal": True}, "causal=True is not for QkvEncoderConfig, where it is always False; leave it out"),
    (
        {"grid": (2, 2)},
        "grid=(2, 2) cannot be set, QkvEncoderConfig derives it from its fields; set those",
    ),
    (
        {"model_type": "bert"},
        "model_type='bert' is not for QkvEncoderConfig, where it is always 'qkv_encoder'; leave it out",
    ),
    # rope
    (
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0}},
        "rope_parameters is set but position='learned'; set position='rope' or drop it",
    ),
    (
        {"position": "alibi", "rope_theta": 1e6},
        "rope_parameters is set but position='alibi'; set position='rope' or drop it",
    ),
    (rope(rope_type="longrope"), "rope_type='longrope' is not one of default, linear, dynamic, yarn, llama3"),
    (
        rope(rope_type="linar"),
        "rope_type='linar' is not one of default, linear, dynamic, yarn, llama3; did you mean 'linear'?",
    ),
    (
        rope(rope_type="linear"),
        f"rope_type='linear' needs factor in {ROPE} {{'rope_type': 'linear', 'rope_theta': 10000.0}}",
    ),
    (
        rope(rope_type="dynamic"),
        f"rope_type='dynamic' needs factor in {ROPE} {{'rope_type': 'dynamic', 'rope_theta': 10000.0}}",
    ),
    (
        rope(rope_type="yarn", rope_theta=5.0, original_max_position_embeddings=64),
        f"rope_type='yarn' needs factor in {ROPE} "
        "{'rope_type': 'yarn', 'rope_theta': 5.0, 'original_max_position_embeddings': 64}",
    ),
    (
        rope(rope_type="llama3", factor=8.0),
        f"rope_type='llama3' needs low_freq_factor, high_freq_factor in {ROPE} {{'rope_type': 'llama3', "
        "'factor': 8.0, 'rope_theta': 10000.0, 'original_max_position_embeddings': 512}",
    ),
    (
        rope(rope_type="llama3", factor=8.0, low_freq_factor=4.0, high_freq_factor=1.0),
        f"low_freq_factor=4.0 of {ROPE} must be below high_freq_factor=1.0",
    ),
    (rope(rope_type="linear", factor=0.5), f"factor=0.5 of {ROPE} must be a finite number of at least 1"),
    (rope(rope_type="linear", factor="2"), f"factor='2' of {ROPE} must be a finite number of at least 1"),
    (rope(rope_theta=NAN), f"rope_theta=nan of {ROPE} must be a finite number above 0"),
    (
        rope(partial_rotary_factor=1.5),
        f"partial_rotary_factor=1.5 of {ROPE} must be a finite number above 0 and at most 1",
    ),
    (rope(rope_typ="linear"), "rope_parameters has no 'rope_typ'; did you mean 'rope_type'?"),
]


def name_of(case: Any) -> str | None:
    return "-".join(case) if isinstance(case, dict) else "" if isinstance(case, str) else None


@pytest.mark.parametrize(("fields", "sentence"), ENCODERS, ids=name_of)
def test_encoder_config(fields: dict[str, Any], sentence: str) -> None:
    assert complaint(lambda: QkvEncoderConfig(**fields)) == sentence


DECODERS: list[tuple[dict[str, Any], str]] = [
    ({"vocabulary_size": 8}, unknown("vocabulary_size", "vocab_size", "QkvDecoderConfig")),
    ({"add_cross_attention": True}, unknown("add_cross_attention", "cross_attention", "QkvDecoderConfig")),
    ({"vocab_size": -1}, "vocab_size=-1 must be at least 1"),
    ({"use_cache": "yes"}, "use_cache='yes' is of type str, expected bool; its default is True"),
    (
        {"eos_token_id": "</s>"},
        "eos_token_id='</s>' is of type str, expected int, list[int] or None; its default is None",
    ),
    (
        {"frontend": "patches"},
        "frontend='patches' is not for QkvDecoderConfig, where it is always 'tokens'; leave it out",
    ),
    ({"type_vocab_size": 2}, "type_vocab_size=2 is not for QkvDecoderConfig, where it is always 0; leave it out"),
    ({"causal": False}, "causal=False is not for QkvDecoderConfig, where it is always True; leave it out"),
]


@pytest.mark.parametrize(("fields", "sentence"), DECODERS, ids=name_of)
def test_decoder_config(fields: dict[str, Any], sentence: str) -> None:
    assert complaint(lambda: QkvDecoderConfig(**fields)) == sentence


TRANSLATORS: list[tuple[dict[str, Any], str]] = [
    ({"hiden_size": 8}, unknown("hiden_size", "hidden_size", "QkvEncoderDecoderConfig")),
    ({"encodr": {}}, unknown("encodr", "encoder", "QkvEncoderDecoderConfig")),
    (
        {"decoder_start_token": 0},
        unknown("decoder_start_token", "decoder_start_token_id", "QkvEncoderDecoderConfig"),
    ),
    ({"encoder": {"hiden_size": 8}}, unknown("hiden_size", "hidden_size")),
    (
        {"decoder": {"num_hiden_layers": 8}},
        unknown("num_hiden_layers", "num_hidden_layers", "QkvDecoderConfig"),
    ),
    ({"encoder": {"position": "ropee"}}, f"position='ropee' is not one of {POSITIONS}; did you mean 'rope'?"),
    ({"decoder": {"attention_dropout": 1.0}}, "attention_dropout=1.0 must lie in [0, 1), for example 0.1"),
    ({"attention_dropout": 1.0}, "attention_dropout=1.0 must lie in [0, 1), for example 0.1"),
    ({"label_smoothing": -0.1}, "label_smoothing=-0.1 must lie in [0, 1), for example 0.1"),
    ({"encoder": 5}, "encoder=5 is of type int, expected QkvEncoderConfig, dict or None; its default is None"),
    (
        {"decoder": "gpt2"},
        "decoder='gpt2' is of type str, expected QkvDecoderConfig, dict or None; its default is None",
    ),
    ({"causal": False}, "causal=False is not for QkvDecoderConfig, where it is always True; leave it out"),
    (
        {"layer_types": ["full_attention"]},
        "layer_types=['full_attention'] cannot be set, QkvDecoderConfig derives it from its fields; set those",
    ),
    (
        {"encoder": {"hidden_size": 384}},
        "encoder hidden_size=384 differs from decoder hidden_size=768; cross-attention reads the encoder's output at the "
        "decoder's width",
    ),
    (
        {"encoder": {"vocab_size": 10}},
        "share_embeddings=True needs one vocabulary, got tokens of 10 for the encoder and 32128 for the decoder; set "
        "share_embeddings=False",
    ),
    (
        {"decoder": {"embedding_size": 384}},
        "share_embeddings=True needs one embedding_size, got 768 for the encoder and 384 for the decoder; set "
        "share_embeddings=False",
    ),
    (
        {"frontend": "patches"},
        "share_embeddings=True needs one vocabulary, got patches of 32128 for the encoder and 32128 for the decoder; set "
        "share_embeddings=False",
    ),
    (
        {"decoder": {"cross_attention": False}},
        "decoder cross_attention=False cannot read the encoder; use QkvDecoderConfig instead",
    ),
    ({"decoder_start_token_id": 40000}, "decoder_start_token_id=40000 must be a token id from 0 to 32127"),
    ({"decoder_start_token_id": None}, "decoder_start_token_id=None must be a token id from 0 to 32127"),
    ({"pad_token_id": -1, "vocab_size": 9}, "pad_token_id=-1 must be a token id from 0 to 8"),
]


@pytest.mark.parametrize(("fields", "sentence"), TRANSLATORS, ids=name_of)
def test_encoder_decoder_config(fields: dict[str, Any], sentence: str) -> None:
    assert complaint(lambda: QkvEncoderDecoderConfig(**fields)) == sentence


EDITS = [
    ("position", "ropee", f"position='ropee' is not one of {POSITIONS}; did you mean 'rope'?"),
    ("hidden_size", "8", "hidden_size='8' is of type str, expected int; its default is 768"),
    ("residual_dropout", 1.0, "residual_dropout=1.0 must lie in [0, 1), for example 0.1"),
    ("causal", True, "causal=True is not for QkvEncoderConfig, where it is always False; leave it out"),
    ("layer_types", [], "layer_types=[] cannot be set, QkvEncoderConfig derives it from its fields; set those"),
]


@pytest.mark.parametrize(("name", "value", "sentence"), EDITS)
def test_edited_config(name: str, value: Any, sentence: str) -> None:
    config = QkvEncoderConfig()
    before = config.to_dict()
    assert complaint(lambda: setattr(config, name, value)) == sentence
    assert config.to_dict() == before


def test_preset_takes_the_same_care() -> None:
    assert complaint(lambda: presets.bert_base(positon="rope")) == unknown("positon", "position")


def test_edited_config_is_checked_as_a_whole_by_model_and_save(tmp_path: Path) -> None:
    config = QkvEncoderConfig(**SIZES)
    config.num_attention_heads = 3
    sentence = "num_attention_heads=3 must be a multiple of num_key_value_heads=2"
    assert complaint(lambda: QkvEncoderModel(config)) == sentence
    assert complaint(lambda: config.save_pretrained(tmp_path)) == sentence
    config = QkvEncoderConfig(**SIZES)
    config.position = "rope"
    assert complaint(lambda: QkvEncoderModel(config)).startswith("rope_type='' is not one of default, linear")


def test_config_of_another_model(tmp_path: Path) -> None:
    GPT2Config().save_pretrained(tmp_path)
    mend = "; use AutoConfig, or qkv.from_transformers for an official checkpoint"
    for config_class in (QkvEncoderConfig, QkvDecoderConfig, QkvEncoderDecoderConfig):
        needs = f"config of model_type='gpt2' is not one for {config_class.__name__}, which needs {config_class.model_type!r}"
        assert complaint(lambda read=config_class.from_pretrained: read(tmp_path)) == needs + mend


CHANGES = [
    ({"hiden_size": 8}, unknown("hiden_size", "hidden_size")),
    ({"hidden_size": 0}, "hidden_size=0 must be at least 1"),
    ({"num_key_value_heads": 5}, "num_attention_heads=12 must be a multiple of num_key_value_heads=5"),
    ({"dtype": "nn"}, f"dtype='nn' is not one of {DTYPES}"),
]


@pytest.mark.parametrize(("changes", "sentence"), CHANGES, ids=name_of)
def test_changes_on_loading(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    QkvEncoderConfig().save_pretrained(tmp_path)
    assert complaint(lambda: QkvEncoderConfig.from_pretrained(tmp_path, **changes)) == sentence


def test_shared_fields_cannot_change_on_loading(tmp_path: Path) -> None:
    QkvEncoderDecoderConfig().save_pretrained(tmp_path)
    sentence = "residual_dropout belongs to the parts of a saved QkvEncoderDecoderConfig; change it in one of them"
    assert complaint(lambda: QkvEncoderDecoderConfig.from_pretrained(tmp_path, residual_dropout=0.2)) == sentence


SIZES = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 11,
    "max_position_embeddings": 6,
}
IMAGES = {"frontend": "patches", "image_size": 8, "patch_size": 4, "num_labels": 3}
IDS = torch.arange(10).reshape(2, 5)
PIXELS = torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)


@cache
def built(model_class: type[PreTrainedModel], **fields: Any) -> PreTrainedModel:
    return model_class(model_class.config_class(**{**SIZES, **fields})).eval()


def encoder(model_class: type[PreTrainedModel] = QkvEncoderModel, **fields: Any) -> PreTrainedModel:
    return built(model_class, **fields)


def vision(model_class: type[PreTrainedModel] = QkvEncoderModel, **fields: Any) -> PreTrainedModel:
    return built(model_class, **IMAGES, **fields)


def decoder(model_class: type[PreTrainedModel] = QkvDecoderModel, **fields: Any) -> PreTrainedModel:
    return built(model_class, **fields)


def translator(**fields: Any) -> PreTrainedModel:
    return built(QkvEncoderDecoderForConditionalGeneration, **fields)


def filled_cache(**fields: Any) -> DynamicCache:
    return decoder(**fields)(IDS, use_cache=True).past_key_values


def zeros(*shape: int) -> Tensor:
    return torch.zeros(shape)


def whole(*shape: int, value: int = 0) -> Tensor:
    return torch.full(shape, value)


VOCABULARY = "outside the vocabulary of 11 (0 to 10); use the model's own tokenizer or resize_token_embeddings"
TOO_LONG = "tokens exceeds max_position_embeddings=6 of position='learned'; use position='rope' or truncate"
MASK = "give one value for each token, or a (batch, 1, queries, keys) mask"
TENSOR = "are not whole numbers (batch, length); use what a tokenizer returns with return_tensors='pt'"
ONE_OF_TWO = "give exactly one of input_ids and inputs_embeds"
ONE_OF_FOUR = f"{ONE_OF_TWO} and pixel_values and input_features"
EMBEDDINGS = "are not (batch, length >= 1, hidden_size=8); check the shape of input_ids or inputs_embeds"
OUTSIDE = "set num_labels, or -100 where none is due"
PACKED = "give where each document of a row of 5 tokens begins, and where the last one ends"

TOKENS: dict[str, tuple[Callable[[], Any], str]] = {
    "ids-and-embeds": (
        lambda: encoder()(IDS, inputs_embeds=zeros(2, 5, 8)),
        f"{ONE_OF_FOUR}; got input_ids and inputs_embeds",
    ),
    "nothing": (lambda: encoder()(), f"{ONE_OF_FOUR}; got none"),
    "nothing-decoder": (lambda: decoder()(), f"{ONE_OF_TWO}; got none"),
    "ids-and-pixels": (lambda: encoder()(IDS, pixel_values=PIXELS), f"{ONE_OF_FOUR}; got input_ids and pixel_values"),
    "pixels-for-tokens": (
        lambda: encoder()(pixel_values=PIXELS),
        "pixel_values given to a model with frontend='tokens'; give input_ids",
    ),
    "ids-for-patches": (
        lambda: vision()(IDS),
        "input_ids given to a model with frontend='patches'; give pixel_values",
    ),
    "misspelt": (
        lambda: encoder()(IDS, atention_mask=zeros(2, 5)),
        "there is no input 'atention_mask'; did you mean 'attention_mask'?",
    ),
    "misspelt-label": (
        lambda: decoder(QkvDecoderForCausalLM)(IDS, label=IDS),
        "there is no input 'label'; did you mean 'labels'?",
    ),
    "id-too-large": (lambda: encoder()(IDS + 5), f"input_ids contain 14, {VOCABULARY}"),
    "id-negative": (lambda: decoder()(IDS - 1), f"input_ids contain -1, {VOCABULARY}"),
    "ids-1d": (lambda: encoder()(IDS[0]), f"input_ids of shape (5,) and type torch.int64 {TENSOR}"),
    "ids-3d": (lambda: decoder()(IDS[None]), f"embeddings of shape (1, 2, 5, 8) {EMBEDDINGS}"),
    "ids-float": (lambda: encoder()(IDS.float()), f"input_ids of shape (2, 5) and type torch.float32 {TENSOR}"),
    "ids-list": (
        lambda: encoder()([[1, 2]]),
        "input_ids of type list are no tensor; use return_tensors='pt'",
    ),
    "ids-empty": (lambda: encoder()(IDS[:, :0]), f"embeddings of shape (2, 0, 8) {EMBEDDINGS}"),
    "embeds-width": (
        lambda: encoder(type_vocab_size=2)(inputs_embeds=zeros(2, 5, 9)),
        f"embeddings of shape (2, 5, 9) {EMBEDDINGS}",
    ),
    "embeds-2d": (lambda: decoder()(inputs_embeds=zeros(2, 8)), f"embeddings of shape (2, 8) {EMBEDDINGS}"),
    "too-long": (lambda: encoder()(whole(1, 7)), f"sequence of 7 {TOO_LONG}"),
    "too-long-decoder": (lambda: decoder()(whole(1, 9)), f"sequence of 9 {TOO_LONG}"),
    "too-long-with-cache": (
        lambda: decoder()(IDS[:, :2], past_key_values=filled_cache()),
        f"sequence of 7 {TOO_LONG}",
    ),
    "too-long-generated": (
        lambda: decoder(QkvDecoderForCausalLM).generate(IDS, max_new_tokens=3, min_new_tokens=3, do_sample=False),
        f"sequence of 7 {TOO_LONG}",
    ),
    "too-long-target": (
        lambda: translator()(IDS, decoder_input_ids=whole(2, 8)),
        f"sequence of 8 {TOO_LONG}",
    ),
    "positions-too-large": (
        lambda: encoder()(IDS, position_ids=torch.arange(5)[None] + 3),
        f"sequence of 8 {TOO_LONG}",
    ),
    "positions-negative": (
        lambda: encoder()(IDS, position_ids=torch.arange(5)[None] - 2),
        "position_ids contain -2; positions of position='learned' count from 0",
    ),
    "positions-shape": (
        lambda: encoder()(IDS, position_ids=whole(1, 4)),
        "position_ids of shape (1, 4) do not fit (2, 5) tokens",
    ),
    "positions-1d": (
        lambda: decoder()(IDS, position_ids=torch.arange(5)),
        "position_ids of shape (5,) do not fit (2, 5) tokens",
    ),
    "mask-length": (
        lambda: encoder()(IDS, zeros(2, 4)),
        f"attention_mask of shape (2, 4) does not fit a batch of 2 rows of 5 tokens; {MASK}",
    ),
    "mask-batch": (
        lambda: decoder()(IDS, zeros(3, 5)),
        f"attention_mask of shape (3, 5) does not fit a batch of 2 rows of 5 tokens; {MASK}",
    ),
    "mask-3d": (
        lambda: encoder()(IDS, zeros(2, 5, 5)),
        f"attention_mask of shape (2, 5, 5) does not fit a batch of 2 rows of 5 tokens; {MASK}",
    ),
    "mask-4d": (
        lambda: encoder()(IDS, zeros(2, 1, 5, 4)),
        "attention_mask of shape (2, 1, 5, 4) is not (batch, 1, queries, keys) = (2, 1, 5, 5)",
    ),
    "mask-additive": (
        lambda: encoder()(IDS, whole(2, 5, value=-1).float()),
        "attention_mask holds negative numbers or NaN; mark real tokens with 1 and padding with 0",
    ),
    "mask-nan": (
        lambda: decoder()(IDS, torch.full((2, 5), NAN)),
        "attention_mask holds negative numbers or NaN; mark real tokens with 1 and padding with 0",
    ),
    "mask-without-cached": (
        lambda: decoder()(IDS[:, :1], zeros(2, 1), past_key_values=filled_cache()),
        f"attention_mask of shape (2, 1) does not fit a batch of 2 rows of 5 cached + 1 tokens; {MASK}",
    ),
    "types-shape": (
        lambda: encoder(type_vocab_size=2)(IDS, token_type_ids=whole(2, 4)),
        "token_type_ids of shape (2, 4) do not fit (2, 5) tokens",
    ),
    "types-too-large": (
        lambda: encoder(type_vocab_size=2)(IDS, token_type_ids=whole(2, 5, value=2)),
        "token_type_ids contain 2, outside the types of 2 (0 to 1); set type_vocab_size or leave them out",
    ),
    "types-without-table": (
        lambda: encoder()(IDS, token_type_ids=whole(2, 5, value=1)),
        "token_type_ids contain 1, outside the types of 1 (0 to 0); set type_vocab_size or leave them out",
    ),
    "choices-2d": (
        lambda: encoder(QkvEncoderForMultipleChoice)(IDS),
        "inputs of shape (2, 5) are not (batch, choices, length); stack each question's choices",
    ),
    "choices-none": (lambda: encoder(QkvEncoderForMultipleChoice)(), f"{ONE_OF_TWO}; got none"),
    "packed-short": (
        lambda: decoder()(IDS[:1], cu_seq_lens_q=torch.tensor([0, 3])),
        f"cu_seq_lens_q=[0, 3] do not rise from 0 to 5; {PACKED}",
    ),
    "packed-late": (
        lambda: encoder()(IDS[:1], cu_seq_lens_q=torch.tensor([1, 5])),
        f"cu_seq_lens_q=[1, 5] do not rise from 0 to 5; {PACKED}",
    ),
    "packed-falling": (
        lambda: decoder()(IDS[:1], cu_seq_lens_q=torch.tensor([0, 3, 2, 5])),
        f"cu_seq_lens_q=[0, 3, 2, 5] do not rise from 0 to 5; {PACKED}",
    ),
    "cache-tuple": (
        lambda: decoder()(IDS, past_key_values=((zeros(2, 2, 1, 4),) * 2,) * 2),
        "past_key_values of type tuple is not a cache; use DynamicCache(config=model.config)",
    ),
    "cache-too-deep": (
        lambda: decoder()(IDS[:, :1], past_key_values=filled_cache(num_hidden_layers=3)),
        "past_key_values hold 3 layers but the model has 2; give each model its own cache",
    ),
    "cache-too-shallow": (
        lambda: decoder()(IDS[:, :1], past_key_values=filled_cache(num_hidden_layers=1)),
        "past_key_values hold 1 layers but the model has 2; give each model its own cache",
    ),
    "cache-rows": (
        lambda: decoder()(IDS[:1, :1], past_key_values=filled_cache()),
        "past_key_values hold 2 rows but the batch has 1; start a new cache",
    ),
    "memory-unread": (
        lambda: decoder()(IDS, encoder_hidden_states=zeros(2, 5, 8)),
        "encoder_hidden_states given to a stack that cannot read them; set cross_attention=True",
    ),
    "memory-missing": (
        lambda: decoder(cross_attention=True)(IDS),
        "cross_attention=True needs encoder_hidden_states, got None; pass an encoder's output",
    ),
    "memory-width": (
        lambda: translator()(encoder_outputs=(zeros(2, 5, 9),), decoder_input_ids=IDS),
        "encoder_hidden_states of shape (2, 5, 9) are not (batch=2, length, hidden_size=8)",
    ),
    "memory-batch": (
        lambda: translator()(encoder_outputs=(zeros(3, 5, 8),), decoder_input_ids=IDS),
        "encoder_hidden_states of shape (3, 5, 8) are not (batch=2, length, hidden_size=8)",
    ),
    "memory-mask": (
        lambda: translator()(attention_mask=zeros(2, 4), encoder_outputs=(zeros(2, 5, 8),), decoder_input_ids=IDS),
        "encoder_attention_mask of shape (2, 4) does not fit an encoder output of (2, 5) (batch, length)",
    ),
    "target-missing": (
        lambda: translator()(IDS),
        "give decoder_input_ids, decoder_inputs_embeds, or labels from which they are made",
    ),
    "target-twice": (
        lambda: translator()(IDS, decoder_input_ids=IDS, decoder_inputs_embeds=zeros(2, 5, 8)),
        f"{ONE_OF_TWO}; got input_ids and inputs_embeds",
    ),
    "source-missing": (lambda: translator()(decoder_input_ids=IDS), f"{ONE_OF_FOUR}; got none"),
}


@pytest.mark.parametrize("case", TOKENS)
def test_tokens(case: str) -> None:
    mistake, sentence = TOKENS[case]
    assert complaint(mistake) == sentence


SHAPE = "are not (batch, 3, height, width); check num_channels and the image processor"
VISION: dict[str, tuple[Callable[[], Any], str]] = {
    "nan": (
        lambda: vision()(pixel_values=PIXELS * NAN),
        "pixel_values contain NaN or infinity; check the image processor's normalisation",
    ),
    "infinite": (
        lambda: vision(QkvEncoderForImageClassification)(PIXELS / 0),
        "pixel_values contain NaN or infinity; check the image processor's normalisation",
    ),
    "channels": (lambda: vision()(pixel_values=PIXELS[:, :1]), f"pixel_values of shape (2, 1, 8, 8) {SHAPE}"),
    "3d": (lambda: vision()(pixel_values=PIXELS[0]), f"pixel_values of shape (3, 8, 8) {SHAPE}"),
    "channels-last": (
        lambda: vision()(pixel_values=PIXELS.permute(0, 2, 3, 1)),
        f"pixel_values of shape (2, 8, 8, 3) {SHAPE}",
    ),
    "other-size": (
        lambda: vision()(pixel_values=zeros(2, 3, 12, 8)),
        "images are 12x8 but image_size=8; resize them, or pass interpolate_pos_encoding=True to resample the positions",
    ),
    "no-multiple": (
        lambda: vision()(pixel_values=zeros(2, 3, 9, 12), interpolate_pos_encoding=True),
        "images of 9x12 are not a multiple of patch_size=4; resize or pad them",
    ),
    "empty": (
        lambda: vision()(pixel_values=zeros(2, 3, 0, 8), interpolate_pos_encoding=True),
        "images of 0x8 are not a multiple of patch_size=4; resize or pad them",
    ),
    "embeds-too-long": (
        lambda: vision()(inputs_embeds=zeros(1, 6, 8)),
        "sequence of 6 tokens exceeds max_position_embeddings=5 of position='learned'; use position='rope' or truncate",
    ),
    "mask-without-token": (
        lambda: vision()(pixel_values=PIXELS, bool_masked_pos=zeros(2, 4).bool()),
        "bool_masked_pos needs a mask token; use QkvEncoderForMaskedImageModeling",
    ),
    "mask-shape": (
        lambda: vision(QkvEncoderForMaskedImageModeling)(PIXELS, bool_masked_pos=zeros(2, 5).bool()),
        "bool_masked_pos of shape (2, 5) does not fit 2 images of 4 patches; give one value for each patch",
    ),
    "label-shape": (
        lambda: vision(QkvEncoderForImageClassification)(PIXELS, labels=whole(3)),
        "labels of shape (3,) and type torch.int64 do not fit scores of shape (2, 3); give one class number for each of "
        "(2,)",
    ),
    "label-too-large": (
        lambda: vision(QkvEncoderForImageClassification)(PIXELS, labels=torch.tensor([0, 3])),
        f"labels contain 3, outside the classes of 3 (0 to 2); {OUTSIDE}",
    ),
    "label-float": (
        lambda: vision(QkvEncoderForImageClassification)(PIXELS, labels=zeros(2)),
        "labels of shape (2,) do not fit scores of shape (2, 3) for problem_type='multi_label_classification'; give one "
        "number for each score",
    ),
}


@pytest.mark.parametrize("case", VISION)
def test_images(case: str) -> None:
    mistake, sentence = VISION[case]
    assert complaint(mistake) == sentence


FIT = "and type torch.int64 do not fit scores of shape (2, 5, 11); give one class number for each of (2, 5)"
LABELS: dict[str, tuple[Callable[[], Any], str]] = {
    "masked-short": (
        lambda: encoder(QkvEncoderForMaskedLM)(IDS, labels=IDS[:, :4]),
        f"labels of shape (2, 4) {FIT}",
    ),
    "masked-transposed": (
        lambda: encoder(QkvEncoderForMaskedLM)(IDS, labels=IDS.T),
        f"labels of shape (5, 2) {FIT}",
    ),
    "masked-float": (
        lambda: encoder(QkvEncoderForMaskedLM)(IDS, labels=IDS.float()),
        f"labels of shape (2, 5) {FIT.replace('int64', 'float32')}",
    ),
    "masked-too-large": (
        lambda: encoder(QkvEncoderForMaskedLM)(IDS, labels=IDS + 2),
        f"labels contain 11, outside the classes of 11 (0 to 10); {OUTSIDE}",
    ),
    "masked-ignored-otherwise": (
        lambda: encoder(QkvEncoderForMaskedLM)(IDS, labels=whole(2, 5, value=-1)),
        f"labels contain -1, outside the classes of 11 (0 to 10); {OUTSIDE}",
    ),
    "next-token-short": (
        lambda: decoder(QkvDecoderForCausalLM)(IDS, labels=IDS[:, :4]),
        f"labels of shape (2, 4) {FIT}",
    ),
    "next-token-flat": (
        lambda: decoder(QkvDecoderForCausalLM)(IDS, labels=IDS[0]),
        f"labels of shape (5,) {FIT}",
    ),
    "target-too-large": (
        lambda: translator()(IDS, decoder_input_ids=IDS, labels=IDS + 3),
        f"labels contain 12, outside the classes of 11 (0 to 10); {OUTSIDE}",
    ),
    "target-negative": (lambda: translator()(IDS, labels=IDS - 1), f"input_ids contain -1, {VOCABULARY}"),
    "class-too-large": (
        lambda: encoder(QkvEncoderForSequenceClassification)(IDS, labels=torch.tensor([0, 2])),
        f"labels contain 2, outside the classes of 2 (0 to 1); {OUTSIDE}",
    ),
    "token-class": (
        lambda: encoder(QkvEncoderForTokenClassification)(IDS, labels=IDS),
        f"labels contain 9, outside the classes of 2 (0 to 1); {OUTSIDE}",
    ),
    "regression-shape": (
        lambda: encoder(QkvEncoderForSequenceClassification, num_labels=1)(IDS, labels=zeros(3)),
        "labels of shape (3,) do not fit scores of shape (2, 1) for problem_type='regression'; give one number for each "
        "score",
    ),
    "span-shape": (
        lambda: encoder(QkvEncoderForQuestionAnswering)(IDS, start_positions=whole(3), end_positions=whole(3)),
        "labels of shape (3,) and type torch.int64 do not fit scores of shape (2, 5); give one class number for each of "
        "(2,)",
    ),
    "span-shape-decoder": (
        lambda: decoder(QkvDecoderForQuestionAnswering)(IDS, start_positions=whole(3), end_positions=whole(3)),
        "labels of shape (3,) and type torch.int64 do not fit scores of shape (2, 5); give one class number for each of "
        "(2,)",
    ),
    "choice-too-large": (
        lambda: encoder(QkvEncoderForMultipleChoice)(IDS[None], labels=torch.tensor([2])),
        f"labels contain 2, outside the classes of 2 (0 to 1); {OUTSIDE}",
    ),
    "sentence-too-large": (
        lambda: encoder(QkvEncoderForPreTraining)(IDS, labels=IDS, next_sentence_label=torch.tensor([0, 2])),
        f"labels contain 2, outside the classes of 2 (0 to 1); {OUTSIDE}",
    ),
}


@pytest.mark.parametrize("case", LABELS)
def test_labels(case: str) -> None:
    mistake, sentence = LABELS[case]
    assert complaint(mistake) == sentence


BACKENDS = "use 'sdpa', 'flex_attention' or 'eager'"


@pytest.mark.parametrize("implementation", ["paged|eager", "paged|sdpa", "flash_attention_2", "flash_attention_3"])
@pytest.mark.parametrize(
    ("fields", "lost"),
    [
        ({"position": "alibi"}, "the score bias of position='alibi'"),
        ({"position": "t5"}, "the score bias of position='t5'"),
        ({"pattern": "block_sparse"}, "pattern='block_sparse'"),
    ],
    ids=["alibi", "t5", "block_sparse"],
)
def test_backends_that_would_drop_scores(implementation: str, fields: dict[str, Any], lost: str) -> None:
    config = QkvEncoderConfig(**SIZES, **fields)
    sentence = f"attn_implementation={implementation!r} ignores {lost}; {BACKENDS}"
    assert complaint(lambda: refuse_lost_scores(config, implementation)) == sentence


def test_backend_that_would_drop_scores_is_refused_by_the_model() -> None:
    model = QkvEncoderModel(QkvEncoderConfig(**SIZES, position="alibi"))
    model.set_attn_implementation("paged|eager")
    assert complaint(lambda: model(IDS)).endswith(f"ignores the score bias of position='alibi'; {BACKENDS}")


def test_unknown_backend() -> None:
    config = QkvEncoderConfig(**SIZES, attn_implementation="sdpaa")
    with pytest.raises(ValueError, match='Specified `attn_implementation="sdpaa"` is not supported'):
        QkvEncoderModel(config)


MODELS = [
    (QkvEncoderModel, QkvDecoderConfig, "QkvEncoderModel needs a config of 'qkv_encoder', got QkvDecoderConfig"),
    (QkvDecoderModel, QkvEncoderConfig, "QkvDecoderModel needs a config of 'qkv_decoder', got QkvEncoderConfig"),
    (QkvDecoderForCausalLM, GPT2Config, "QkvDecoderForCausalLM needs a config of 'qkv_decoder', got GPT2Config"),
    (QkvDecoderForCausalLM, dict, "QkvDecoderForCausalLM needs a config of 'qkv_decoder', got dict"),
]


@pytest.mark.parametrize(("model_class", "config_class", "sentence"), MODELS)
def test_config_of_another_family(model_class: type, config_class: type, sentence: str) -> None:
    assert complaint(lambda: model_class(config_class())) == sentence


WRONG_HEADS = [
    (QkvEncoderForMaskedLM, IMAGES, "tokens", "patches"),
    (QkvEncoderForTokenClassification, IMAGES, "tokens", "patches"),
    (QkvEncoderForSequenceClassification, IMAGES, "tokens", "patches"),
    (QkvEncoderForImageClassification, {}, "patches", "tokens"),
    (QkvEncoderForMaskedImageModeling, {}, "patches", "tokens"),
]


@pytest.mark.parametrize(("model_class", "fields", "reads", "given"), WRONG_HEADS)
def test_head_of_another_frontend(model_class: type, fields: dict[str, Any], reads: str, given: str) -> None:
    sentence = f"reads {reads}, got frontend={given!r}; set frontend={reads!r} or use another head"
    assert complaint(lambda: model_class(QkvEncoderConfig(**SIZES, **fields))) == f"{model_class.__name__} {sentence}"
