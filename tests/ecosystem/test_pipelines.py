"""transformers' pipelines load a saved folder, tokenizer or image processor and all, and give the model's own numbers."""

import json
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import client_models
import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from transformers import (
    AutoModelForObjectDetection,
    AutoModelForZeroShotImageClassification,
    CLIPImageProcessorPil,
    CLIPProcessor,
    DetrImageProcessorPil,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Speech2TextFeatureExtractor,
    ViTImageProcessorPil,
    Wav2Vec2CTCTokenizer,
    WhisperFeatureExtractor,
    pipeline,
)

import qkv.modeling as qkv_models
import tiny

pytestmark = pytest.mark.upstream

TEXTS = ["attention reads every word", "a transformer stacks attention", "words that stand near each other"]
IDS = {"vocab_size": len(client_models.LETTERS), "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3}
LABELS = {"id2label": {0: "sad", 1: "glad", 2: "mad"}, "label2id": {"sad": 0, "glad": 1, "mad": 2}}


def tokenizer() -> PreTrainedTokenizerFast:
    """Of letters, which end."""
    letters = client_models.tokenizer(mask_token="@")
    letters.backend_tokenizer.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 3)])
    return letters


def save(model: PreTrainedModel, folder: Path, *processors: Any) -> PreTrainedModel:
    tiny.jitter(model).eval().save_pretrained(folder)
    for processor in processors:
        processor.save_pretrained(folder)
    return model


@torch.no_grad()
def scores(model: PreTrainedModel, inputs: Any) -> Tensor:
    return model(**inputs).logits


def test_fill_mask(tmp_path: Path) -> None:
    words = tokenizer()
    model = save(qkv_models.QkvEncoderForMaskedLM(tiny.encoder(**IDS)), tmp_path, words)
    fill = pipeline("fill-mask", model=str(tmp_path))
    assert type(fill.model) is type(model)
    inputs = words("reads @very", return_tensors="pt")
    expected = scores(model, inputs)[0, 6].softmax(-1).topk(3)
    guesses = fill("reads @very", top_k=3)
    assert [guess["token"] for guess in guesses] == expected.indices.tolist()
    assert [guess["score"] for guess in guesses] == pytest.approx(expected.values.tolist(), rel=1e-4)


@pytest.mark.parametrize(
    ("model_class", "config"),
    [
        (qkv_models.QkvEncoderForSequenceClassification, tiny.encoder),
        (qkv_models.QkvDecoderForSequenceClassification, tiny.decoder),
    ],
)
def test_text_classification(model_class: Any, config: Any, tmp_path: Path) -> None:
    model = save(model_class(config(num_labels=3, **LABELS, **IDS)), tmp_path, words := tokenizer())
    classify = pipeline("text-classification", model=str(tmp_path), top_k=None)
    for text, rows in zip(TEXTS, classify(TEXTS, batch_size=3), strict=True):
        expected = scores(model, words(text, return_tensors="pt"))[0].softmax(-1).tolist()
        assert {row["label"]: row["score"] for row in rows} == pytest.approx(
            dict(zip(LABELS["label2id"], expected, strict=True)), rel=1e-4
        )


@pytest.mark.parametrize("family", ["Encoder", "Decoder"])
def test_token_classification(family: str, tmp_path: Path) -> None:
    config = getattr(tiny, family.lower())(id2label={0: "O", 1: "B-WORD", 2: "I-WORD"}, **IDS)
    model = save(getattr(qkv_models, f"Qkv{family}ForTokenClassification")(config), tmp_path, words := tokenizer())
    best = scores(model, words(TEXTS[0], return_tensors="pt"))[0, : len(TEXTS[0])].softmax(-1).max(-1)
    found = pipeline("token-classification", model=str(tmp_path), ignore_labels=[])(TEXTS[0])[: len(TEXTS[0])]
    assert [row["entity"] for row in found] == [config.id2label[index] for index in best.indices.tolist()]
    assert [row["score"] for row in found] == pytest.approx(best.values.tolist(), rel=1e-4)


def test_text_generation(tmp_path: Path) -> None:
    words = client_models.tokenizer(padding_side="left")
    model = save(qkv_models.QkvDecoderForCausalLM(tiny.decoder("llama", **IDS)), tmp_path, words)
    generate = pipeline("text-generation", model=str(tmp_path))
    options = {"max_new_tokens": 6, "do_sample": False}
    for prompt, written in zip(TEXTS, generate(TEXTS, batch_size=3, **options), strict=True):
        tokens = model.generate(**words(prompt, return_tensors="pt"), **options)[0]
        assert written[0]["generated_text"].replace(" ", "") == words.decode(tokens, True).replace(" ", "")
    several = generate(TEXTS[0], max_new_tokens=4, num_beams=2, num_return_sequences=2, return_full_text=False)
    assert len(several) == 2


@pytest.mark.parametrize(
    ("model_class", "config"),
    [
        (qkv_models.QkvDecoderModel, tiny.decoder),
        # Any head's folder serves: the base model is read out of it.
        (qkv_models.QkvEncoderForMaskedLM, tiny.encoder),
    ],
)
def test_feature_extraction(model_class: Any, config: Any, tmp_path: Path) -> None:
    model = save(model_class(config(**IDS)), tmp_path, words := tokenizer())
    extract = pipeline("feature-extraction", model=str(tmp_path))
    with torch.no_grad():
        expected = model.base_model(**words(TEXTS[1], return_tensors="pt")).last_hidden_state
    assert np.allclose(np.array(extract(TEXTS[1])), expected.numpy(), atol=1e-4)


def pictures() -> list[Image.Image]:
    """Of any size and mode: the processor makes them what the model reads."""
    noise = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    return [Image.fromarray(noise), Image.fromarray(noise[..., 0]).resize((9, 50))]


@pytest.mark.parametrize("kind", tiny.KINDS["image_encoder"])
def test_image_classification(kind: str, tmp_path: Path) -> None:
    processor = ViTImageProcessorPil(size={"height": 12, "width": 16})
    config = tiny.image_encoder(kind, **LABELS)
    model = save(qkv_models.QkvImageEncoderForImageClassification(config), tmp_path, processor)
    classify = pipeline("image-classification", model=str(tmp_path), top_k=3)
    for picture, rows in zip(pictures(), classify(pictures()), strict=True):
        expected = scores(model, processor(picture.convert("RGB"), return_tensors="pt"))[0].softmax(-1).tolist()
        found = {row["label"]: row["score"] for row in rows}
        assert [found[label] for label in LABELS["label2id"]] == pytest.approx(expected, rel=1e-4)


def test_zero_shot_image_classification(tmp_path: Path) -> None:
    images = CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size={"height": 12, "width": 16})
    processor, subjects = CLIPProcessor(images, tokenizer()), ["a word", "a layer", "a sentence"]
    config = tiny.dual_encoder(text_config={"max_position_embeddings": 48, **IDS})
    save(qkv_models.QkvDualEncoderModel(config), tmp_path, processor)
    model = AutoModelForZeroShotImageClassification.from_pretrained(tmp_path)
    choose = pipeline("zero-shot-image-classification", model=str(tmp_path))
    for picture in pictures():
        texts = [f"This is a photo of {subject}." for subject in subjects]
        inputs = processor(text=texts, images=picture.convert("RGB"), padding=True, return_tensors="pt")
        with torch.no_grad():
            expected = model(**inputs).logits_per_image[0].softmax(-1).tolist()
        found = {row["label"]: row["score"] for row in choose(picture, candidate_labels=subjects)}
        assert [found[subject] for subject in subjects] == pytest.approx(expected, rel=1e-4)


def test_object_detection(tmp_path: Path) -> None:
    config = tiny.detector(encoder={"position": "sinusoidal_2d"}, num_queries=9)
    processor = DetrImageProcessorPil(size={"shortest_edge": 24, "longest_edge": 40}, do_convert_rgb=True)
    save(qkv_models.QkvDetectionForObjectDetection(config), tmp_path, processor)
    model = AutoModelForObjectDetection.from_pretrained(tmp_path)
    find = pipeline("object-detection", model=str(tmp_path), threshold=0.0)
    for picture, found in zip(pictures(), find(pictures()), strict=True):
        with torch.no_grad():
            output = model(**processor(picture.convert("RGB"), return_tensors="pt"))
        size = torch.tensor([picture.size[::-1]])
        expected = processor.post_process_object_detection(output, threshold=0.0, target_sizes=size)[0]
        assert [row["score"] for row in found] == pytest.approx(expected["scores"].tolist(), rel=1e-4)
        assert [row["label"] for row in found] == [config.id2label[int(label)] for label in expected["labels"]]
        assert [list(row["box"].values()) for row in found] == expected["boxes"].int().tolist()


def recorded(seconds: float = 3.0) -> dict[str, Any]:
    noise = np.random.RandomState(0).randn(int(16_000 * seconds)).astype(np.float32)
    return {"raw": 0.1 * noise, "sampling_rate": 16_000}


def labelling(folder: Path, features: Any, **fields: Any) -> tuple[PreTrainedModel, Any]:
    """A model of speech that labels frames with letters."""
    names = {"<pad>": 0, "<unk>": 1, "|": 2, **{letter: index for index, letter in enumerate("abcdefgh", start=3)}}
    (folder / "letters.json").write_text(json.dumps(names))
    letters = Wav2Vec2CTCTokenizer(str(folder / "letters.json"))
    config = tiny.audio_encoder(vocab_size=len(names), pad_token_id=0, bos_token_id=None, eos_token_id=None, **fields)
    return save(qkv_models.QkvAudioEncoderForCTC(config), folder, features, letters), letters


def test_speech_is_labelled(tmp_path: Path) -> None:
    features = Speech2TextFeatureExtractor(feature_size=6, num_mel_bins=6)
    model, letters = labelling(tmp_path, features)
    transcribe = pipeline("automatic-speech-recognition", model=str(tmp_path))
    inputs = features(recorded()["raw"], sampling_rate=16_000, return_tensors="pt")
    expected = letters.decode(scores(model, inputs)[0].argmax(-1))
    assert transcribe(recorded())["text"] == expected and len(set(expected)) > 4
    times = transcribe(recorded(), return_timestamps="char")["chunks"]
    assert 0 <= times[0]["timestamp"][0] < times[-1]["timestamp"][1] <= 3.05
    with pytest.raises(ValueError, match="silent"):
        transcribe({"raw": np.zeros(16_000, np.float32), "sampling_rate": 16_000})


def test_long_speech_in_chunks_is_read_as_at_once_where_nothing_reaches_further(tmp_path: Path) -> None:
    features = Speech2TextFeatureExtractor(feature_size=6, num_mel_bins=6, do_ceptral_normalize=False)
    labelling(tmp_path, features, position="none", pattern="sliding", sliding_window=2, num_hidden_layers=1)
    transcribe = pipeline("automatic-speech-recognition", model=str(tmp_path))
    chunks = {"chunk_length_s": 2.0, "stride_length_s": 0.4}
    whole, pieces = (transcribe(recorded(6.0), **options)["text"] for options in ({}, chunks))
    assert SequenceMatcher(None, whole, pieces).ratio() > 0.95


@pytest.mark.parametrize("kind", ["speech", "plain"])
def test_speech_is_written_down(kind: str, tmp_path: Path) -> None:
    words = tokenizer()
    config = tiny.speech_encoder_decoder(kind, decoder_start_token_id=2, max_position_embeddings=200, **IDS)
    of_speech = Speech2TextFeatureExtractor(feature_size=6, num_mel_bins=6)
    features = of_speech if kind == "speech" else WhisperFeatureExtractor(feature_size=6, chunk_length=3)
    model = save(qkv_models.QkvSpeechEncoderDecoderForSpeechSeq2Seq(config), tmp_path, words, features)
    generate = pipeline("automatic-speech-recognition", model=str(tmp_path))
    assert generate.type == "seq2seq"
    sounds, options = [recorded(), recorded(1.1)], {"max_new_tokens": 6, "num_beams": 1}

    def generated(samples: Any) -> list[int]:
        inputs = features(samples, sampling_rate=16_000, return_tensors="pt", return_attention_mask=True)
        return list(model.generate(**inputs, **options)[0])

    for sound, answer in zip(sounds, generate([dict(sound) for sound in sounds], batch_size=2, **options), strict=True):
        assert answer["text"] == words.decode(generated(sound["raw"]), skip_special_tokens=True)
    parts = [token for second in np.split(sounds[0]["raw"], 3) for token in generated(second)]
    in_chunks = generate(dict(sounds[0]), chunk_length_s=1.0, stride_length_s=0.0, **options)["text"]
    assert in_chunks == words.decode(parts, skip_special_tokens=True)
