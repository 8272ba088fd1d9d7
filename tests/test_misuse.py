"""A user's mistake is answered by one sentence that names the field, what it got and what mends it."""

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, GPT2Config, PreTrainedModel

import qkv
import tables
import tiny
from errors import raises_sentence
from qkv import (
    QkvDecoderConfig,
    QkvDecoderForCausalLM,
    QkvDecoderForQuestionAnswering,
    QkvDecoderModel,
    QkvEncoderConfig,
    QkvEncoderDecoderConfig,
    QkvEncoderDecoderForConditionalGeneration,
    QkvEncoderForMaskedLM,
    QkvEncoderForMultipleChoice,
    QkvEncoderForPreTraining,
    QkvEncoderForQuestionAnswering,
    QkvEncoderForSequenceClassification,
    QkvEncoderForTokenClassification,
    QkvEncoderModel,
    QkvImageEncoderConfig,
    QkvImageEncoderForImageClassification,
    QkvImageEncoderForMaskedImageModeling,
    QkvImageEncoderModel,
    presets,
)
from qkv.configuration.axes import KernelName, PatternName, PositionName

TABLES = tables.beside(__file__)
NAN = float("nan")
Row = Sequence[Any]


def check(mistake: Callable[[], Any], *mentions: str) -> None:
    """Assert that a mistake is a plain ValueError of one sentence with mentions, one or `several | of them`, no library's wrapper around it."""
    with raises_sentence(*" | ".join(mentions).split(" | ")) as caught:
        mistake()
    assert caught.value.__cause__ is None and "Validation error" not in str(caught.value)


# Configs: the fields that are wrong, and what the sentence must mention: the field with its value, and what mends it. ---


@pytest.mark.parametrize(
    ("owner", "name", "meant"),
    [(owner, *pair) for owner, names in TABLES["misspelt"].items() for pair in names.items()],
)
def test_misspelt_field(owner: str, name: str, meant: str) -> None:
    check(lambda: getattr(qkv, owner)(**{name: 8}), owner, repr(name), repr(meant))


# A word that is not known: all that are known are listed, and the nearest is named.
WORDS = [
    ("position", "ropee", "rope", get_args(PositionName)),
    ("position", "absolute", None, get_args(PositionName)),
    ("pattern", "slidng", "sliding", get_args(PatternName)),
    ("kernel", "linnear", "linear", get_args(KernelName)),
    ("norm", "layernorm", "layer", ("layer", "rms")),
    ("feed_forward", "moe", None, ("mlp", "glu")),
    ("hidden_act", "swish", None, ("relu", "gelu", "gelu_new", "silu")),
    ("hidden_act", "gelu_neww", "gelu_new", ("relu", "gelu", "gelu_new", "silu")),
    ("pooling", "mena", "mean", ("first", "mean", "highest")),
    ("dtype", "float23", "float32", ("float16", "bfloat16", "float32")),
    ("problem_type", "regresion", "regression", ("regression", "single_label_classification")),
]


@pytest.mark.parametrize(("name", "value", "meant", "known"), WORDS)
def test_unknown_word(name: str, value: str, meant: str | None, known: tuple[str, ...]) -> None:
    check(lambda: QkvEncoderConfig(**{name: value}), f"{name}={value!r}", *known, *([repr(meant)] if meant else []))


TYPES = [
    ("hidden_size", "8", "int", "768"),
    ("hidden_size", 8.0, "int", "768"),
    ("hidden_size", True, "int", "768"),
    ("num_hidden_layers", None, "int", "12"),
    ("norm_first", 1, "bool", "True"),
    ("norm_eps", "1e-5", "float", "1e-05"),
    ("attention_dropout", True, "float", "0.0"),
    ("head_dim", 2.5, "int or None", "None"),
    ("position", 3, *map(repr, get_args(PositionName)), "'learned'"),
    ("pattern", 3, "int", "list"),
    ("num_labels", "3", "1"),
    ("id2label", ["cat"], "{0: 'cat'}"),
]


@pytest.mark.parametrize(("name", "value", "expected"), [(name, value, rest) for name, value, *rest in TYPES])
def test_wrong_type(name: str, value: Any, expected: list[str]) -> None:
    check(lambda: QkvEncoderConfig(**{name: value}), f"{name}={value!r}", *expected)


NUMBERS = [
    *((name, value, str(least)) for name, (least, *values) in TABLES["least"].items() for value in values),
    *((name, value, "[0, 1)") for name, values in TABLES["shares"].items() for value in values),
    *((name, value, "positive") for name, values in TABLES["positive"].items() for value in values),
]


@pytest.mark.parametrize(("name", "value", "expected"), NUMBERS)
def test_number_out_of_range(name: str, value: float, expected: str) -> None:
    check(lambda: QkvEncoderConfig(**{name: value}), f"{name}={value}", expected)


# What no YAML says: tuples, and configs of another class.
OTHERS: list[Row] = [
    (QkvImageEncoderConfig, {"grid": (2, 2)}, "grid=(2, 2) | QkvImageEncoderConfig"),
    (QkvImageEncoderConfig, {"image_size": (8, 8, 3)}, "image_size=(8, 8, 3) | int | list[int] | tuple[int, int]"),
    (
        qkv.QkvDualEncoderConfig,
        {"vision_config": QkvDecoderConfig()},
        "vision_config | QkvDecoderConfig | QkvImageEncoderConfig",
    ),
    (
        qkv.QkvDualEncoderConfig,
        {"text_config": QkvEncoderConfig()},
        "text_config | QkvEncoderConfig | QkvTextEncoderConfig",
    ),
]


def detector(**fields: Any) -> qkv.QkvDetectionConfig:
    return qkv.QkvDetectionConfig(**{"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, **fields})


def recurrent(**fields: Any) -> qkv.QkvRecurrentConfig:
    return qkv.QkvRecurrentConfig(**{"hidden_size": 8, "vocab_size": 11, **fields})


# Configs by the names of their classes, or by what makes valid ones.
MAKERS = {"audio_encoder": tiny.audio_encoder, "detector": detector, "recurrent": recurrent}
CONFIGS = [
    *((MAKERS.get(name) or getattr(qkv, name), *row) for name, rows in TABLES["configs"].items() for row in rows),
    *OTHERS,
]


@pytest.mark.parametrize("row", CONFIGS, ids=lambda row: f"{row[0].__name__}-{'-'.join(row[1])}-{row[2]}")
def test_config(row: Row) -> None:
    make, fields, *mentions = row
    check(lambda: make(**fields), *mentions)


@pytest.mark.parametrize("row", TABLES["edits"], ids=lambda row: row[0])
def test_edited_config(row: Row) -> None:
    name, value, *mentions = row
    config = QkvEncoderConfig()
    before = config.to_dict()
    check(lambda: setattr(config, name, value), *mentions)
    assert config.to_dict() == before


def test_preset_takes_the_same_care() -> None:
    check(lambda: presets.bert_base(positon="rope"), "QkvEncoderConfig", "'positon'", "'position'")


def test_edited_config_is_checked_as_a_whole_by_model_and_save(tmp_path: Path) -> None:
    config = QkvEncoderConfig(**SIZES)
    config.num_attention_heads = 3
    for use in (lambda: QkvEncoderModel(config), lambda: config.save_pretrained(tmp_path)):
        check(use, "num_attention_heads=3", "num_key_value_heads=2")
    config = QkvEncoderConfig(**SIZES)
    config.position = "rope"
    check(lambda: QkvEncoderModel(config), "rope_type=''", "default, linear")


@pytest.mark.parametrize("config_class", [QkvEncoderConfig, QkvDecoderConfig, QkvEncoderDecoderConfig])
def test_config_of_another_model(tmp_path: Path, config_class: type) -> None:
    GPT2Config().save_pretrained(tmp_path)
    wanted = (config_class.__name__, repr(config_class.model_type))
    check(
        lambda: config_class.from_pretrained(tmp_path), "model_type='gpt2'", *wanted, "AutoConfig", "from_transformers"
    )


@pytest.mark.parametrize("row", TABLES["changes"], ids=lambda row: "-".join(row[0]))
def test_changes_on_loading(tmp_path: Path, row: Row) -> None:
    changes, *mentions = row
    QkvEncoderConfig().save_pretrained(tmp_path)
    check(lambda: QkvEncoderConfig.from_pretrained(tmp_path, **changes), *mentions)


def test_shared_fields_cannot_change_on_loading(tmp_path: Path) -> None:
    QkvEncoderDecoderConfig().save_pretrained(tmp_path)
    read = QkvEncoderDecoderConfig.from_pretrained
    check(lambda: read(tmp_path, residual_dropout=0.2), "residual_dropout", "QkvEncoderDecoderConfig")


# Inputs of a model ----------------------------------------------------------------------------------------------------

SIZES = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 11,
    "max_position_embeddings": 6,
}
IMAGES = {"image_size": 8, "patch_size": 4, "num_labels": 3, "vocab_size": None}
IDS = torch.arange(10).reshape(2, 5)
PIXELS = torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)


@cache
def built(model_class: type[PreTrainedModel], **fields: Any) -> PreTrainedModel:
    given = {name: value for name, value in {**SIZES, **fields}.items() if value is not None}
    return model_class(model_class.config_class(**given)).eval()


def encoder(model_class: type[PreTrainedModel] = QkvEncoderModel, **fields: Any) -> PreTrainedModel:
    return built(model_class, **fields)


def vision(model_class: type[PreTrainedModel] = QkvImageEncoderModel, **fields: Any) -> PreTrainedModel:
    return built(model_class, **IMAGES, **fields)


def decoder(model_class: type[PreTrainedModel] = QkvDecoderModel, **fields: Any) -> PreTrainedModel:
    return built(model_class, **fields)


def encoder_decoder(**fields: Any) -> PreTrainedModel:
    return built(QkvEncoderDecoderForConditionalGeneration, **fields)


def filled_cache(**fields: Any) -> DynamicCache:
    return decoder(**fields)(IDS, use_cache=True).past_key_values


def zeros(*shape: int) -> Tensor:
    return torch.zeros(shape)


def whole(*shape: int, value: int = 0) -> Tensor:
    return torch.full(shape, value)


VOCABULARY = "11 (0 to 10) | resize_token_embeddings"
TOO_LONG = "max_position_embeddings=6 | position='learned' | position='rope'"
EITHER = "input_ids | inputs_embeds"
DECODER_INPUTS = "decoder_input_ids | decoder_inputs_embeds | labels"
EMBEDDINGS = "batch | length | hidden_size=8 | input_ids"
MASK = "attention_mask | (batch, 1, queries, keys)"
PACKED = "0 | 5"

TOKENS: list[Row] = [
    (lambda: encoder()(IDS, inputs_embeds=zeros(2, 5, 8)), f"{EITHER}"),
    (lambda: encoder()(), f"{EITHER} | none"),
    (lambda: decoder()(), f"{EITHER} | none"),
    (lambda: encoder()(IDS, pixel_values=PIXELS), "pixel_values | input_ids"),
    (lambda: encoder()(pixel_values=PIXELS), "pixel_values | input_ids"),
    (lambda: vision()(input_ids=IDS), "input_ids | pixel_values"),
    (lambda: encoder()(IDS, atention_mask=zeros(2, 5)), "'atention_mask' | 'attention_mask'"),
    (lambda: decoder(QkvDecoderForCausalLM)(IDS, label=IDS), "'label' | 'labels'"),
    (lambda: encoder()(IDS + 5), f"input_ids | 14 | {VOCABULARY}"),
    (lambda: decoder()(IDS - 1), f"input_ids | -1 | {VOCABULARY}"),
    (lambda: encoder()(IDS[0]), "input_ids | (5,) | (batch, length)"),
    (lambda: decoder()(IDS[None]), f"(1, 2, 5, 8) | {EMBEDDINGS}"),
    (lambda: encoder()(IDS.float()), "input_ids | (2, 5) | torch.float32 | return_tensors='pt'"),
    (lambda: encoder()([[1, 2]]), "input_ids | list | return_tensors='pt'"),
    (lambda: encoder()(IDS[:, :0]), f"(2, 0, 8) | {EMBEDDINGS}"),
    (lambda: encoder(type_vocab_size=2)(inputs_embeds=zeros(2, 5, 9)), f"(2, 5, 9) | {EMBEDDINGS}"),
    (lambda: decoder()(inputs_embeds=zeros(2, 8)), f"(2, 8) | {EMBEDDINGS}"),
    (lambda: encoder()(whole(1, 7)), f"7 | {TOO_LONG}"),
    (lambda: decoder()(whole(1, 9)), f"9 | {TOO_LONG}"),
    (lambda: decoder()(IDS[:, :2], past_key_values=filled_cache()), f"7 | {TOO_LONG}"),
    (
        lambda: decoder(position="grid", text_length=2)(whole(1, 7)),
        "7 | max_position_embeddings=6 | position='grid' | position='rope'",
    ),
    (
        lambda: decoder(QkvDecoderForCausalLM).generate(IDS, max_new_tokens=3, min_new_tokens=3, do_sample=False),
        f"7 | {TOO_LONG}",
    ),
    (lambda: encoder_decoder()(IDS, decoder_input_ids=whole(2, 8)), f"8 | {TOO_LONG}"),
    (lambda: encoder()(IDS, position_ids=torch.arange(5)[None] + 3), f"8 | {TOO_LONG}"),
    (lambda: encoder()(IDS, position_ids=torch.arange(5)[None] - 2), "position_ids | -2 | position='learned' | 0"),
    (lambda: encoder()(IDS, position_ids=whole(1, 4)), "position_ids | (1, 4) | (2, 5)"),
    (lambda: decoder()(IDS, position_ids=torch.arange(5)), "position_ids | (5,) | (2, 5)"),
    (lambda: encoder()(IDS, zeros(2, 4)), f"(2, 4) | 2 | 5 | {MASK}"),
    (lambda: decoder()(IDS, zeros(3, 5)), f"(3, 5) | 2 | 5 | {MASK}"),
    (lambda: encoder()(IDS, zeros(2, 5, 5)), f"(2, 5, 5) | 2 | 5 | {MASK}"),
    (lambda: encoder()(IDS, zeros(2, 1, 5, 4)), f"(2, 1, 5, 4) | (2, 1, 5, 5) | {MASK}"),
    (lambda: encoder()(IDS, whole(2, 5, value=-1).float()), "attention_mask | from -1.0 | 1 | 0"),
    (lambda: encoder()(IDS, whole(2, 5, value=2)), "attention_mask | to 2 | 1 | 0 | position_ids"),
    (lambda: decoder()(IDS, whole(2, 5, value=-1)), "attention_mask | from -1 | 1 | 0"),
    (lambda: decoder()(IDS, torch.full((2, 5), 0.5)), "attention_mask | from 0.5 | 1 | 0"),
    (
        lambda: encoder_decoder()(
            attention_mask=whole(2, 5, value=2), encoder_outputs=(zeros(2, 5, 8),), decoder_input_ids=IDS
        ),
        "encoder_attention_mask | to 2 | 1 | 0",
    ),
    (lambda: decoder()(IDS, torch.full((2, 5), NAN)), "attention_mask | nan | 1 | 0"),
    (lambda: decoder()(IDS[:, :1], zeros(2, 1), past_key_values=filled_cache()), f"(2, 1) | 5 | {MASK}"),
    (lambda: encoder(type_vocab_size=2)(IDS, token_type_ids=whole(2, 4)), "token_type_ids | (2, 4) | (2, 5)"),
    (
        lambda: encoder(type_vocab_size=2)(IDS, token_type_ids=whole(2, 5, value=2)),
        "token_type_ids | 2 (0 to 1) | type_vocab_size",
    ),
    (lambda: encoder()(IDS, token_type_ids=whole(2, 5, value=1)), "token_type_ids | 1 (0 to 0) | type_vocab_size"),
    (lambda: encoder(QkvEncoderForMultipleChoice)(IDS), "(2, 5) | (batch, choices, length)"),
    (lambda: encoder(QkvEncoderForMultipleChoice)(), f"{EITHER} | none"),
    (lambda: decoder()(IDS[:1], cu_seq_lens_q=torch.tensor([0, 3])), f"cu_seq_lens_q=[0, 3] | {PACKED}"),
    (lambda: encoder()(IDS[:1], cu_seq_lens_q=torch.tensor([1, 5])), f"cu_seq_lens_q=[1, 5] | {PACKED}"),
    (lambda: decoder()(IDS[:1], cu_seq_lens_q=torch.tensor([0, 3, 2, 5])), f"cu_seq_lens_q=[0, 3, 2, 5] | {PACKED}"),
    (
        lambda: decoder()(IDS, past_key_values=((zeros(2, 2, 1, 4),) * 2,) * 2),
        "past_key_values | tuple | DynamicCache(config=model.config)",
    ),
    (lambda: decoder()(IDS[:, :1], past_key_values=filled_cache(num_hidden_layers=3)), "past_key_values | 3 | 2"),
    (lambda: decoder()(IDS[:, :1], past_key_values=filled_cache(num_hidden_layers=1)), "past_key_values | 1 | 2"),
    (lambda: decoder()(IDS[:1, :1], past_key_values=filled_cache()), "past_key_values | 2 | 1"),
    (lambda: decoder()(IDS, encoder_hidden_states=zeros(2, 5, 8)), "encoder_hidden_states | cross_attention=True"),
    (lambda: decoder(cross_attention=True)(IDS), "cross_attention=True | encoder_hidden_states | None"),
    (
        lambda: encoder_decoder()(encoder_outputs=(zeros(2, 5, 9),), decoder_input_ids=IDS),
        "encoder_hidden_states | (2, 5, 9) | batch=2 | hidden_size=8",
    ),
    (
        lambda: encoder_decoder()(encoder_outputs=(zeros(3, 5, 8),), decoder_input_ids=IDS),
        "encoder_hidden_states | (3, 5, 8) | batch=2 | hidden_size=8",
    ),
    (
        lambda: encoder_decoder()(attention_mask=zeros(2, 4), encoder_outputs=(zeros(2, 5, 8),), decoder_input_ids=IDS),
        "encoder_attention_mask | (2, 4) | (2, 5)",
    ),
    (lambda: encoder_decoder()(IDS), f"{DECODER_INPUTS}"),
    (lambda: encoder_decoder()(IDS, decoder_input_ids=IDS, decoder_inputs_embeds=zeros(2, 5, 8)), f"{EITHER}"),
    (lambda: encoder_decoder()(decoder_input_ids=IDS), f"{EITHER} | none"),
]

IMAGE_SHAPE = "(batch, 3, height, width) | num_channels"
PIXEL_INPUTS: list[Row] = [
    (lambda: vision()(pixel_values=PIXELS * NAN), "pixel_values | NaN | image processor"),
    (lambda: vision(QkvImageEncoderForImageClassification)(PIXELS / 0), "pixel_values | infinity | image processor"),
    (lambda: vision()(pixel_values=PIXELS[:, :1]), f"pixel_values | (2, 1, 8, 8) | {IMAGE_SHAPE}"),
    (lambda: vision()(pixel_values=PIXELS[0]), f"pixel_values | (3, 8, 8) | {IMAGE_SHAPE}"),
    (lambda: vision()(pixel_values=PIXELS.permute(0, 2, 3, 1)), f"pixel_values | (2, 8, 8, 3) | {IMAGE_SHAPE}"),
    (lambda: vision()(pixel_values=zeros(2, 3, 12, 8)), "12x8 | image_size=8 | interpolate_pos_encoding=True"),
    (lambda: vision()(pixel_values=zeros(2, 3, 9, 12), interpolate_pos_encoding=True), "9x12 | patch_size=4"),
    (lambda: vision()(pixel_values=zeros(2, 3, 0, 8)), "pixel_values | (2, 3, 0, 8) | empty"),
    (
        lambda: vision()(inputs_embeds=zeros(1, 6, 8)),
        "6 | max_position_embeddings=5 | position='learned' | position='rope'",
    ),
    (
        lambda: vision()(pixel_values=PIXELS, bool_masked_pos=zeros(2, 4).bool()),
        "bool_masked_pos | QkvImageEncoderForMaskedImageModeling",
    ),
    (
        lambda: vision(QkvImageEncoderForMaskedImageModeling)(PIXELS, bool_masked_pos=zeros(2, 5).bool()),
        "bool_masked_pos | (2, 5) | 4",
    ),
    (lambda: vision(QkvImageEncoderForImageClassification)(PIXELS, labels=whole(3)), "labels | (3,) | (2, 3) | (2,)"),
    (
        lambda: vision(QkvImageEncoderForImageClassification)(PIXELS, labels=torch.tensor([0, 3])),
        "labels | 3 (0 to 2) | num_labels | -100",
    ),
    (
        lambda: vision(QkvImageEncoderForImageClassification)(PIXELS, labels=zeros(2)),
        "labels | (2,) | (2, 3) | problem_type='multi_label_classification'",
    ),
]

FIT = "(2, 5, 11) | (2, 5)"
CLASSES = "num_labels | -100"
LABELS: list[Row] = [
    (lambda: encoder(QkvEncoderForMaskedLM)(IDS, labels=IDS[:, :4]), f"labels | (2, 4) | {FIT}"),
    (lambda: encoder(QkvEncoderForMaskedLM)(IDS, labels=IDS.T), f"labels | (5, 2) | {FIT}"),
    (lambda: encoder(QkvEncoderForMaskedLM)(IDS, labels=IDS.float()), f"labels | torch.float32 | {FIT}"),
    (lambda: encoder(QkvEncoderForMaskedLM)(IDS, labels=IDS + 2), "labels | 11 | 11 (0 to 10) | -100"),
    (lambda: encoder(QkvEncoderForMaskedLM)(IDS, labels=whole(2, 5, value=-1)), "labels | -1 | 11 (0 to 10) | -100"),
    (lambda: decoder(QkvDecoderForCausalLM)(IDS, labels=IDS[:, :4]), f"labels | (2, 4) | {FIT}"),
    (lambda: decoder(QkvDecoderForCausalLM)(IDS, labels=IDS[0]), f"labels | (5,) | {FIT}"),
    (lambda: encoder_decoder()(IDS, decoder_input_ids=IDS, labels=IDS + 3), "labels | 12 | 11 (0 to 10) | -100"),
    (lambda: encoder_decoder()(IDS, labels=IDS - 1), f"input_ids | -1 | {VOCABULARY}"),
    (
        lambda: encoder(QkvEncoderForSequenceClassification)(IDS, labels=torch.tensor([0, 2])),
        f"labels | 2 (0 to 1) | {CLASSES}",
    ),
    (lambda: encoder(QkvEncoderForTokenClassification)(IDS, labels=IDS), f"labels | 9 | 2 (0 to 1) | {CLASSES}"),
    (
        lambda: encoder(QkvEncoderForSequenceClassification, num_labels=1)(IDS, labels=zeros(3)),
        "labels | (3,) | (2, 1) | problem_type='regression'",
    ),
    (
        lambda: encoder(QkvEncoderForQuestionAnswering)(IDS, start_positions=whole(3), end_positions=whole(3)),
        "(3,) | (2, 5) | (2,)",
    ),
    (
        lambda: decoder(QkvDecoderForQuestionAnswering)(IDS, start_positions=whole(3), end_positions=whole(3)),
        "(3,) | (2, 5) | (2,)",
    ),
    (
        lambda: encoder(QkvEncoderForMultipleChoice)(IDS[None], labels=torch.tensor([2])),
        f"labels | 2 (0 to 1) | {CLASSES}",
    ),
    (
        lambda: encoder(QkvEncoderForPreTraining)(IDS, labels=IDS, next_sentence_label=torch.tensor([0, 2])),
        f"2 (0 to 1) | {CLASSES}",
    ),
]


@pytest.mark.parametrize("row", [*TOKENS, *PIXEL_INPUTS, *LABELS], ids=lambda row: row[1])
def test_inputs(row: Row) -> None:
    check(*row)


# Models and backends --------------------------------------------------------------------------------------------------


BACKENDS = "sdpa | flex_attention | eager"


def test_backend_that_would_drop_scores_is_refused_by_the_model() -> None:
    model = QkvEncoderModel(QkvEncoderConfig(**SIZES, position="alibi"))
    model.set_attn_implementation("paged|eager")
    check(lambda: model(IDS), "attn_implementation='paged|eager'", "position='alibi'", BACKENDS)


def test_unknown_backend_is_left_to_transformers() -> None:
    config = QkvEncoderConfig(**SIZES, attn_implementation="sdpaa")
    with pytest.raises(ValueError, match=re.escape('attn_implementation="sdpaa"')):
        QkvEncoderModel(config)


@pytest.mark.parametrize(
    ("model_class", "config_class"),
    [
        (QkvEncoderModel, QkvDecoderConfig),
        (QkvDecoderModel, QkvEncoderConfig),
        (QkvDecoderForCausalLM, GPT2Config),
        (QkvDecoderForCausalLM, dict),
        (QkvEncoderForMaskedLM, QkvImageEncoderConfig),
        (QkvEncoderForTokenClassification, QkvImageEncoderConfig),
        (QkvEncoderForSequenceClassification, QkvImageEncoderConfig),
        (QkvImageEncoderForImageClassification, QkvEncoderConfig),
        (QkvImageEncoderForMaskedImageModeling, QkvEncoderConfig),
        (qkv.QkvAudioEncoderForCTC, QkvEncoderConfig),
        (QkvDecoderForCausalLM, QkvEncoderDecoderConfig),
        (QkvEncoderDecoderForConditionalGeneration, qkv.QkvSpeechEncoderDecoderConfig),
        (qkv.QkvSpeechEncoderDecoderForSpeechSeq2Seq, QkvEncoderDecoderConfig),
        (qkv.QkvTextEncoderModel, QkvEncoderConfig),
    ],
)
def test_config_of_another_family(model_class: type, config_class: type) -> None:
    check(
        lambda: model_class(config_class()),
        model_class.__name__,
        model_class.config_class.__name__,
        config_class.__name__,
    )
