"""A wrong input, or a config of another family, is answered by one sentence that names it, what it got and what mends it."""

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, GPT2Config, PreTrainedModel

from errors import raises_sentence
from qkv import (
    QkvDecoderForCausalLM,
    QkvDecoderModel,
    QkvEncoderConfig,
    QkvEncoderDecoderForConditionalGeneration,
    QkvEncoderForMaskedLM,
    QkvEncoderForMultipleChoice,
    QkvEncoderForPreTraining,
    QkvEncoderForQuestionAnswering,
    QkvEncoderForSequenceClassification,
    QkvEncoderForTokenClassification,
    QkvEncoderModel,
    QkvImageEncoderForImageClassification,
    QkvImageEncoderForMaskedImageModeling,
    QkvImageEncoderModel,
)
from qkv.configuration import CONFIGS
from tiny import CASES

NAN = float("nan")
Row = Sequence[Any]


def check(mistake: Callable[[], Any], *mentions: str) -> None:
    """Assert that a mistake is a plain ValueError of one sentence with mentions, one or `several | of them`."""
    with raises_sentence(*" | ".join(mentions).split(" | ")) as caught:
        mistake()
    assert caught.value.__cause__ is None


SIZES = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZES |= {"vocab_size": 11, "max_position_embeddings": 6}
IMAGES = {"image_size": 8, "patch_size": 4, "num_labels": 3, "vocab_size": None}
IDS = torch.arange(10).reshape(2, 5)
PIXELS = torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)


@cache
def built(model_class: type[PreTrainedModel], **fields: Any) -> PreTrainedModel:
    given = {name: value for name, value in {**SIZES, **fields}.items() if value is not None}
    return model_class(model_class.config_class(**given)).eval()


def encoder(model_class: type[PreTrainedModel] = QkvEncoderModel, **fields: Any) -> PreTrainedModel:
    return built(model_class, **fields)


def vision(model_class: type[PreTrainedModel] = QkvImageEncoderModel) -> PreTrainedModel:
    return built(model_class, **IMAGES)


def decoder(**fields: Any) -> PreTrainedModel:
    return built(QkvDecoderModel, **fields)


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
    (lambda: encoder()(IDS, pixel_values=PIXELS), "pixel_values | input_ids"),
    (lambda: vision()(input_ids=IDS), "input_ids | pixel_values"),
    (lambda: encoder()(IDS, atention_mask=zeros(2, 5)), "'atention_mask' | 'attention_mask'"),
    (lambda: encoder()(IDS + 5), f"input_ids | 14 | {VOCABULARY}"),
    (lambda: decoder()(IDS - 1), f"input_ids | -1 | {VOCABULARY}"),
    (lambda: encoder()(IDS[0]), "input_ids | (5,) | (batch, length)"),
    (lambda: decoder()(IDS[None]), f"(1, 2, 5, 8) | {EMBEDDINGS}"),
    (lambda: encoder()(IDS.float()), "input_ids | (2, 5) | torch.float32 | return_tensors='pt'"),
    (lambda: encoder()([[1, 2]]), "input_ids | list | return_tensors='pt'"),
    (lambda: encoder()(IDS[:, :0]), f"(2, 0, 8) | {EMBEDDINGS}"),
    (lambda: encoder(type_vocab_size=2)(inputs_embeds=zeros(2, 5, 9)), f"(2, 5, 9) | {EMBEDDINGS}"),
    (lambda: encoder()(whole(1, 7)), f"7 | {TOO_LONG}"),
    (lambda: decoder()(IDS[:, :2], past_key_values=filled_cache()), f"7 | {TOO_LONG}"),
    (
        lambda: decoder(position="grid", text_length=2)(whole(1, 7)),
        "7 | max_position_embeddings=6 | position='grid' | position='rope'",
    ),
    (lambda: encoder()(IDS, position_ids=torch.arange(5)[None] + 3), f"8 | {TOO_LONG}"),
    (lambda: encoder()(IDS, position_ids=torch.arange(5)[None] - 2), "position_ids | -2 | position='learned' | 0"),
    (lambda: encoder()(IDS, position_ids=whole(1, 4)), "position_ids | (1, 4) | (2, 5)"),
    (lambda: encoder()(IDS, zeros(2, 4)), f"(2, 4) | 2 | 5 | {MASK}"),
    (lambda: encoder()(IDS, zeros(2, 5, 5)), f"(2, 5, 5) | 2 | 5 | {MASK}"),
    (lambda: encoder()(IDS, zeros(2, 1, 5, 4)), f"(2, 1, 5, 4) | (2, 1, 5, 5) | {MASK}"),
    (lambda: encoder()(IDS, whole(2, 5, value=-1).float()), "attention_mask | from -1.0 | 1 | 0"),
    (lambda: encoder()(IDS, whole(2, 5, value=2)), "attention_mask | to 2 | 1 | 0 | position_ids"),
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
    (lambda: decoder()(IDS[:1], cu_seq_lens_q=torch.tensor([0, 3])), f"cu_seq_lens_q=[0, 3] | {PACKED}"),
    (lambda: encoder()(IDS[:1], cu_seq_lens_q=torch.tensor([1, 5])), f"cu_seq_lens_q=[1, 5] | {PACKED}"),
    (lambda: decoder()(IDS[:1], cu_seq_lens_q=torch.tensor([0, 3, 2, 5])), f"cu_seq_lens_q=[0, 3, 2, 5] | {PACKED}"),
    (lambda: decoder()(IDS, past_key_values=((zeros(2, 2, 1, 4),) * 2,) * 2), "past_key_values | tuple | DynamicCache"),
    (lambda: decoder()(IDS[:, :1], past_key_values=filled_cache(num_hidden_layers=3)), "past_key_values | 3 | 2"),
    (lambda: decoder()(IDS[:1, :1], past_key_values=filled_cache()), "past_key_values | 2 | 1"),
    (
        lambda: decoder()(IDS, encoder_hidden_states=zeros(2, 5, 8)),
        "encoder_hidden_states=Tensor | cross_attention=False",
    ),
    (lambda: decoder(cross_attention=True)(IDS), "cross_attention=True | encoder_hidden_states=None"),
    (
        lambda: encoder_decoder()(encoder_outputs=(zeros(2, 5, 9),), decoder_input_ids=IDS),
        "encoder_hidden_states | (2, 5, 9) | batch=2 | hidden_size=8",
    ),
    (
        lambda: encoder_decoder()(attention_mask=zeros(2, 4), encoder_outputs=(zeros(2, 5, 8),), decoder_input_ids=IDS),
        "encoder_attention_mask | (2, 4) | (2, 5)",
    ),
    (lambda: encoder_decoder()(IDS), f"{DECODER_INPUTS}"),
    (lambda: encoder_decoder()(IDS, decoder_input_ids=IDS, decoder_inputs_embeds=zeros(2, 5, 8)), f"{EITHER}"),
]

IMAGE_SHAPE = "(batch, 3, height, width) | image processor"
PIXEL_INPUTS: list[Row] = [
    (lambda: vision()(pixel_values=PIXELS * NAN), "pixel_values | NaN | image processor"),
    (lambda: vision(QkvImageEncoderForImageClassification)(PIXELS / 0), "pixel_values | infinity | image processor"),
    (lambda: vision()(pixel_values=PIXELS[:, :1]), f"pixel_values | (2, 1, 8, 8) | {IMAGE_SHAPE}"),
    (lambda: vision()(pixel_values=PIXELS.permute(0, 2, 3, 1)), f"pixel_values | (2, 8, 8, 3) | {IMAGE_SHAPE}"),
    (lambda: vision()(pixel_values=zeros(2, 3, 12, 8)), "12x8 | image_size=8 | interpolate_pos_encoding=True"),
    (lambda: vision()(pixel_values=zeros(2, 3, 9, 12), interpolate_pos_encoding=True), "9x12 | patch_size=4"),
    (lambda: vision()(pixel_values=zeros(2, 3, 0, 8)), f"pixel_values | (2, 3, 0, 8) | {IMAGE_SHAPE}"),
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
        lambda: vision(QkvImageEncoderForImageClassification)(PIXELS, labels=zeros(2)),
        "labels | (2,) | (2, 3) | problem_type='multi_label_classification'",
    ),
]

FIT = "(2, 5, 11) | (2, 5)"
CLASSES = "num_labels | -100"
LABELS: list[Row] = [
    (lambda: encoder(QkvEncoderForMaskedLM)(IDS, labels=IDS[:, :4]), f"labels | (2, 4) | {FIT}"),
    (lambda: encoder(QkvEncoderForMaskedLM)(IDS, labels=IDS.float()), f"labels | torch.float32 | {FIT}"),
    (lambda: encoder(QkvEncoderForMaskedLM)(IDS, labels=IDS + 2), "labels | 11 | 11 (0 to 10) | -100"),
    (lambda: encoder(QkvEncoderForMaskedLM)(IDS, labels=whole(2, 5, value=-1)), "labels | -1 | 11 (0 to 10) | -100"),
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


@pytest.mark.parametrize("own", CONFIGS)
def test_config_of_another_family(own: Any) -> None:
    case = next(case for case in CASES if case.model_class.config_class is own)
    for config_class in CONFIGS:
        if config_class is not own:
            names = (case.model_class.__name__, own.__name__, config_class.__name__)
            check(lambda kind=config_class: case.model_class(kind()), *names)


@pytest.mark.parametrize("config_class", [GPT2Config, dict])
def test_config_of_a_library(config_class: type) -> None:
    check(lambda: QkvDecoderForCausalLM(config_class()), "QkvDecoderForCausalLM", config_class.__name__)
