"""Speech models generate what stock Whisper does, in windows, and otherwise what any encoder-decoder does."""

import copy
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

import qkv
import tiny
from families import variant
from sampling import sampled
from speaking import build

pytestmark = pytest.mark.upstream

LANGUAGES = {"<|en|>": 5, "<|de|>": 6, "<|fr|>": 7}
TASKS = {"transcribe": 8, "translate": 9}
# Tokens from the one after `no_timestamps_token_id` on are times, in steps of 0.02 seconds.
WHISPER = {
    **{"lang_to_id": LANGUAGES, "task_to_id": TASKS, "is_multilingual": True, "no_timestamps_token_id": 40},
    **{"prev_sot_token_id": 10, "max_initial_timestamp_index": 3, "alignment_heads": [[0, 0], [1, 1]]},
    **{"max_length": 24, "decoder_start_token_id": 3, "pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 2},
    **{"suppress_tokens": [11, 12], "begin_suppress_tokens": [13]},
}


@cache
def whispers() -> tuple[PreTrainedModel, PreTrainedModel]:
    """Stock Whisper with all that its `generate` asks of a generation config, and ours."""
    fields = {"eos_token_id": 2, "bos_token_id": 2, "tie_word_embeddings": False}
    official = variant("whisper", "ForConditionalGeneration", "", **fields).build()
    with torch.no_grad():
        for name, parameter in official.named_parameters():
            loud = "conv" in name or "embed" in name or "proj_out" in name
            parameter.add_((1.0 if loud else 0.1) * torch.randn_like(parameter))
    for name, value in WHISPER.items():
        setattr(official.generation_config, name, value)
    return official, qkv.from_transformers(official)


def sound(frames: int = 22, batch: int = 2) -> Tensor:
    return torch.randn(batch, 10, frames, generator=torch.Generator().manual_seed(4))


def generate(model: PreTrainedModel, features: Tensor, **options: Any) -> Any:
    torch.manual_seed(0)
    model.generation_config = copy.deepcopy(model.generation_config)
    return model.generate(features, **options)


OPTIONS: dict[str, dict[str, Any]] = {
    "beams": {"num_beams": 3, "max_new_tokens": 6},
    "sampled": {"do_sample": True, "temperature": 0.7, "max_new_tokens": 6},
    "language": {"language": "de", "task": "translate", "max_new_tokens": 6},
    "times": {"return_timestamps": True, "language": "en"},
    "prompt": {"prompt_ids": torch.tensor([10, 20, 21]), "language": "en", "max_new_tokens": 6},
    "static cache": {"cache_implementation": "static", "max_new_tokens": 6},
    "no cache": {"use_cache": False, "max_new_tokens": 6},
    "two languages": {"language": ["fr", "en"], "max_new_tokens": 6},
}


@pytest.mark.parametrize("name", sampled(OPTIONS, 2))
def test_a_window_is_written_as_stock_whisper_writes_it(name: str) -> None:
    theirs, ours = (generate(model, sound(), **OPTIONS[name]) for model in whispers())
    assert torch.equal(ours, theirs) and len(ours.unique()) > 3


def test_forced_ids_of_old_checkpoints_are_forced() -> None:
    found = []
    for model in whispers():
        model = copy.deepcopy(model)
        for name in ("lang_to_id", "task_to_id", "is_multilingual"):
            delattr(model.generation_config, name)
        model.generation_config.forced_decoder_ids = [[1, 6], [2, 9]]
        found.append(model.generate(sound(), max_new_tokens=6, return_dict_in_generate=True).sequences)
    assert torch.equal(*found)


@pytest.mark.parametrize(
    "conditioned", sampled([True, False], 2), ids={True: "windows know what was said", False: "each alone"}.get
)
def test_long_sound_is_written_window_by_window(conditioned: bool) -> None:
    features, mask = sound(60), (torch.arange(60) < torch.tensor([[60], [35]])).long()
    options = {"return_timestamps": True, "language": "en", "condition_on_prev_tokens": conditioned}
    theirs, ours = (
        generate(model, features, attention_mask=mask, return_segments=True, **options) for model in whispers()
    )
    assert torch.equal(ours["sequences"], theirs["sequences"])
    assert [len(row) for row in ours["segments"]] == [len(row) for row in theirs["segments"]]
    assert len(ours["segments"][0]) > 2  # one window holds 22 frames
    for mine, stock in zip(ours["segments"][0], theirs["segments"][0], strict=True):
        assert (mine["start"], mine["end"]) == (stock["start"], stock["end"])


def test_words_are_timed_by_the_same_alignment() -> None:
    options = {"return_token_timestamps": True, "return_timestamps": True, "language": "en"}
    theirs, ours = (generate(model, sound(), **options) for model in map(copy.deepcopy, whispers()))
    for name in ("sequences", "token_timestamps"):
        assert torch.equal(ours[name], theirs[name])
    assert len(ours["token_timestamps"].unique()) > 2


def test_the_language_is_detected_alike() -> None:
    theirs, ours = (model.detect_language(sound()) for model in whispers())
    assert torch.equal(ours, theirs) and set(ours.tolist()) <= set(LANGUAGES.values())


# Sound as a whole -----------------------------------------------------------------------------------------------------


def test_a_batch_is_written_as_its_rows_are() -> None:
    model, inputs = build("speech"), tiny.audio(batch=3)
    lengths = inputs["attention_mask"].sum(-1).tolist()
    rows = [row[None, :length] for row, length in zip(inputs["input_features"], lengths, strict=True)]
    tokens = torch.full((3, 1), tiny.START)
    for _ in range(6):  # the argmax of each step without a cache
        given = zip(rows, tokens.split(1), strict=True)
        with torch.no_grad():
            logits = [model(row, decoder_input_ids=own, use_cache=False).logits[:, -1] for row, own in given]
        tokens = torch.cat((tokens, torch.cat(logits).argmax(-1, keepdim=True)), dim=1)
    assert len(tokens.unique()) > 4
    for options in ({}, {"cache_implementation": "static"}, {"use_cache": False}):
        assert torch.equal(model.generate(**inputs, max_new_tokens=6, do_sample=False, **options), tokens)


def test_bins_first_needs_no_mask_either() -> None:
    model, inputs = build("plain"), tiny.audio(plain=True)
    full = {**inputs, "attention_mask": torch.ones_like(inputs["attention_mask"])}
    ways = (full, {**inputs, "attention_mask": None})
    assert torch.equal(*(model.generate(**given, max_new_tokens=5, num_beams=2) for given in ways))


@pytest.mark.parametrize("tied", [True, False])
def test_the_vocabulary_can_be_resized(tied: bool) -> None:
    model = qkv.QkvSpeechEncoderDecoderForSpeechSeq2Seq(tiny.speech_encoder_decoder(tie_word_embeddings=tied))
    model.resize_token_embeddings(70)
    assert model.lm_head.out_features == model.config.decoder.vocab_size == model.config.vocab_size == 70
    assert (model.lm_head.weight is model.get_input_embeddings().weight) == tied
    assert model(**tiny.transcriptions(), skip_logits=False).logits.shape[-1] == 70
