"""Right inputs pass, the other side of `test_misuse.py`; wrong images, objects and sound are refused in a sentence."""

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import DynamicCache, StaticCache
from transformers.cache_utils import EncoderDecoderCache

import tiny
from errors import raises_sentence
from qkv import (
    QkvAudioEncoderForCTC,
    QkvDecoderConfig,
    QkvDecoderForCausalLM,
    QkvDecoderModel,
    QkvDetectionForObjectDetection,
    QkvEncoderConfig,
    QkvEncoderModel,
)
from qkv.modeling.checks import inputs

pytestmark = pytest.mark.upstream

SIZES = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 11}
SIZES |= {"max_position_embeddings": 16}
IDS = torch.arange(10).reshape(2, 5)
HIDDEN = torch.zeros(2, 5, 8)


def test_values_are_read_only_where_it_costs_nothing() -> None:
    assert inputs.can_read_values(IDS)
    assert inputs.can_read_values(torch.nn.Parameter(HIDDEN))
    assert not inputs.can_read_values(IDS.to("meta"))
    with FakeTensorMode() as mode:
        assert not inputs.can_read_values(mode.from_tensor(IDS))

    def compiled(ids: torch.Tensor) -> torch.Tensor:
        inputs.check_range("input_ids", ids, 3, "vocabulary", "mend it")
        inputs.check_boundaries(ids[0], HIDDEN)
        return ids + 1

    # Nothing is looked at, so nothing breaks the graph, and nothing is refused.
    assert torch.equal(torch.compile(compiled, fullgraph=True, backend="eager")(IDS), IDS + 1)


@pytest.mark.parametrize("device", ["meta", "fake"])
def test_models_without_values_run(device: str) -> None:
    with torch.device("meta") if device == "meta" else FakeTensorMode(allow_non_fake_inputs=True):
        model = QkvDecoderForCausalLM(QkvDecoderConfig(**SIZES))
        ids = torch.full((2, 5), 99)
        assert model(ids, labels=ids, use_cache=False, skip_logits=False).logits.shape == (2, 5, 11)


def test_right_inputs_pass() -> None:
    labels = torch.tensor([[0, 10, -100, 3, 4]] * 2, dtype=torch.int32)
    for given in (IDS, torch.full((2, 5), -100), labels):
        inputs.check_labels((2, 5, 11), given, -100)
    for classes, given in ((11, IDS.flatten()), (3, torch.tensor([[0], [2]])), (3, torch.zeros(0, dtype=torch.long))):
        inputs.check_labels((len(given), classes), given, -100)
    inputs.check_labels((1, 5, 11), torch.arange(5), -100)
    for ends in ([0, 5], [0, 1, 5], [0, 2, 2, 5], [0, 0, 5]):
        inputs.check_boundaries(torch.tensor(ends, dtype=torch.int32), HIDDEN)
    inputs.check_token_types(torch.zeros_like(IDS), HIDDEN, 0)
    inputs.check_token_types(IDS % 2, HIDDEN, 2)
    encoder = QkvEncoderModel(QkvEncoderConfig(**SIZES))
    for shape in ((1, 1, 5, 5), (2, 1, 5, 5), (2, 2, 5, 5), (1, 2, 5, 5)):
        assert encoder(IDS, torch.ones(shape).bool().tril()).last_hidden_state.shape == (2, 5, 8)


def test_caches_that_fit() -> None:
    model = QkvDecoderModel(QkvDecoderConfig(**SIZES)).eval()
    caches = [DynamicCache(config=model.config), DynamicCache(), StaticCache(config=model.config, max_cache_len=12)]
    for cache in (*caches, EncoderDecoderCache(DynamicCache(config=model.config), DynamicCache())):
        for chunk in (IDS[:, :3], IDS[:, 3:]):
            hidden = model(chunk, past_key_values=cache, use_cache=True).last_hidden_state
        torch.testing.assert_close(hidden, model(IDS).last_hidden_state[:, 3:])


def test_positions_end_with_the_table() -> None:
    model, padding = QkvDecoderModel(QkvDecoderConfig(**SIZES)).eval(), (torch.arange(18) >= 14).long()[None]
    whole = {"input_ids": torch.zeros(1, 16, dtype=torch.long)}
    late = {"input_ids": IDS[:1], "position_ids": torch.arange(11, 16)[None]}
    padded = {"input_ids": torch.zeros_like(padding), "attention_mask": padding}  # 4 real tokens in a row of 18
    for given in (whole, late, padded):
        assert model(**given).last_hidden_state.shape == (*given["input_ids"].shape, 8)


def changed(values: dict[str, Any], name: str, place: Any, value: float) -> dict[str, Any]:
    """The inputs with another number in one place of a tensor."""
    tensor = values[name].clone()
    tensor[place] = value
    return {name: tensor}


def labelled(**changes: Any) -> dict[str, Any]:
    first, second = tiny.objects()["labels"]
    return {"labels": [{**first, **changes}, second]}


SOUND, PIXELS = tiny.audio_with_labels(), tiny.padded_images()
NAN, FRAMES = float("nan"), torch.arange(33)
FITTING = ("input_features", "num_mel_bins=6", "frame_layout='frames_first'")
# Changes of right inputs, and what the sentence mentions.
OBJECTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "no pixels": ({"pixel_values": None}, ("pixel_values", "(batch, 3, height, width)")),
    "one channel": ({"pixel_values": torch.zeros(2, 1, 8, 56)}, ("pixel_values", "(2, 1, 8, 56)")),
    "no columns": ({"pixel_values": torch.zeros(2, 3, 8, 0)}, ("pixel_values", "(2, 3, 8, 0)")),
    "nan": (changed(PIXELS, "pixel_values", (0, 0, 0, 0), NAN), ("pixel_values", "NaN")),
    "mask": ({"pixel_mask": torch.ones(2, 8, 55)}, ("pixel_mask", "(2, 8, 55)", "(2, 8, 56)")),
    "padding in front": ({"pixel_mask": torch.zeros(2, 8, 56)}, ("pixel_mask",)),
    "no objects": ({"labels": torch.zeros(2)}, ("labels", "Tensor", "2")),
    "one image's": ({"labels": tiny.objects()["labels"][:1]}, ("labels", "1", "2")),
    "too many boxes": (labelled(boxes=torch.rand(3, 4)), ("labels[0]", "(3, 4)", "(2, 4)")),
    "unknown class": (labelled(class_labels=torch.tensor([0, 3])), ("labels[0]", "3 (0 to 2)", "num_labels")),
    "pixels": (labelled(boxes=torch.tensor([[10.0, 10, 30, 40]] * 2)), ("labels[0]", "10 to 40")),
    "count": ({"num_items_in_batch": 3}, ("num_items_in_batch=3",)),
}
SPEECH: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "bins first": ({"input_features": SOUND["input_features"].transpose(1, 2)}, FITTING),
    "one row": ({"input_features": SOUND["input_features"][0]}, FITTING),
    "no frames": ({"input_features": torch.zeros(2, 0, 6)}, FITTING),
    "infinity": (changed(SOUND, "input_features", (0, 0, 0), float("-inf")), ("input_features", "infinity")),
    "mask": ({"attention_mask": torch.ones(2, 8).long()}, ("attention_mask", "(2, 8)", "(2, 33)")),
    "padding in front": (
        {"attention_mask": SOUND["attention_mask"].flip(1)},
        ("attention_mask", "padding_side='right'"),
    ),
    "a hole": ({"attention_mask": (FRAMES != 4).long().expand(2, -1)}, ("attention_mask", "padding_side='right'")),
    "one number": ({"labels": torch.tensor([3, 4])}, ("labels", "(2,)", "2")),
    "strange word": ({"labels": torch.tensor([[61], [4]])}, ("labels", "61 (0 to 60)")),
    "blank": ({"labels": torch.tensor([[5, 1], [4, 6]])}, ("labels", "pad_token_id")),
    "too many words": (
        {"labels": torch.tensor([[5] * 5, [4, 4, 4, 5, 5]])},
        ("row 1", "8", "7", "ctc_zero_infinity=True"),
    ),
    "tokens": ({"input_features": None, "input_ids": torch.tensor([[5]])}, ("input_ids", "input_features")),
}


@pytest.mark.parametrize(("changes", "mentions"), OBJECTS.values(), ids=OBJECTS)
def test_images_and_objects_that_do_not_fit(changes: dict[str, Any], mentions: tuple[str, ...]) -> None:
    with raises_sentence(*mentions):
        QkvDetectionForObjectDetection(tiny.detector("patches"))(**{**tiny.objects(), **changes})


@pytest.mark.parametrize(("changes", "mentions"), SPEECH.values(), ids=SPEECH)
def test_sound_and_words_that_do_not_fit(changes: dict[str, Any], mentions: tuple[str, ...]) -> None:
    with raises_sentence(*mentions):
        QkvAudioEncoderForCTC(tiny.audio_encoder()).eval()(**{**SOUND, **changes})


def test_ctc_needs_a_blank_and_may_spare_rows_that_are_too_short() -> None:
    with raises_sentence("pad_token_id=None", "0 to 60"):
        QkvAudioEncoderForCTC(tiny.audio_encoder(pad_token_id=None))
    spared = QkvAudioEncoderForCTC(tiny.audio_encoder(ctc_zero_infinity=True)).eval()
    assert spared(**{**SOUND, "labels": torch.tensor([[5] * 5, [4, 4, 4, 5, 5]])}).loss.isfinite()
