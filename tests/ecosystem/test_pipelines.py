"""transformers' pipelines load a saved folder, tokenizer or image processor and all, and give the model's own numbers."""

import json
import wave
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor
from transformers import (
    AutoFeatureExtractor,
    AutoImageProcessor,
    AutoModelForObjectDetection,
    AutoModelForZeroShotImageClassification,
    AutoProcessor,
    CLIPImageProcessorPil,
    CLIPProcessor,
    CLIPTokenizer,
    DetrImageProcessorPil,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Speech2TextFeatureExtractor,
    ViTImageProcessorPil,
    Wav2Vec2CTCTokenizer,
    WhisperFeatureExtractor,
    WhisperProcessor,
    WhisperTokenizer,
    pipeline,
)

import qkv.modeling as qkv_models
import tiny
from qkv.scripts.data.audio import read_wav

pytestmark = pytest.mark.upstream

CORPUS = [
    "Attention reads every word of a sentence at once.",
    "A transformer stacks attention and feed-forward layers.",
    "The encoder reads the sentence, the decoder writes the next word.",
    "Words that stand near each other often belong together.",
    "Every layer adds what it has read to what it already knows.",
    "Ångström, naïve and façade are words too: reading them loses nothing!",
]
SPECIAL = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"]
SIZE = 160


def finish(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    names = dict(zip(("unk_token", "pad_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="[SEP]", **names)
    fast.model_max_length = 48
    return fast


def wordpiece() -> PreTrainedTokenizerFast:
    """BERT's: lower case, pieces inside words, [CLS] and [SEP] around."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=SIZE, special_tokens=SPECIAL))
    ids = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
    )
    return finish(tokenizer)


def byte_level() -> PreTrainedTokenizerFast:
    """GPT-2's: pairs of bytes merged, so nothing is unknown."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=SIZE + 200, special_tokens=SPECIAL, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return finish(tokenizer)


def sizes(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    named = ("pad_token_id", "bos_token_id", "eos_token_id")
    return {"vocab_size": len(tokenizer)} | {name: getattr(tokenizer, name) for name in named}


def save(model: PreTrainedModel, processor: Any, folder: Path) -> PreTrainedModel:
    tiny.jitter(model).eval().save_pretrained(folder)
    processor.save_pretrained(folder)
    return model


def scores(model: PreTrainedModel, inputs: Any) -> Tensor:
    with torch.no_grad():
        return model(**inputs).logits


def test_fill_mask(tmp_path: Path) -> None:
    tokenizer = wordpiece()
    model = save(qkv_models.QkvEncoderForMaskedLM(tiny.encoder(**sizes(tokenizer))), tokenizer, tmp_path)
    fill = pipeline("fill-mask", model=str(tmp_path))
    assert type(fill.model) is type(model)
    text = "attention reads every [MASK] of a sentence"
    inputs = tokenizer(text, return_tensors="pt")
    at = (inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero()[0, 0]
    expected = scores(model, inputs)[0, at].softmax(-1).topk(3)
    guesses = fill(text, top_k=3)
    assert [guess["token"] for guess in guesses] == expected.indices.tolist()
    assert [guess["score"] for guess in guesses] == pytest.approx(expected.values.tolist(), rel=1e-4)
    inputs["input_ids"][0, at] = guesses[0]["token"]
    assert guesses[0]["sequence"] == tokenizer.decode(inputs["input_ids"][0], skip_special_tokens=True)


FAMILIES = [
    (qkv_models.QkvEncoderForSequenceClassification, tiny.encoder, wordpiece),
    (qkv_models.QkvDecoderForSequenceClassification, tiny.decoder, byte_level),
]
LABELS = {"id2label": {0: "sad", 1: "glad", 2: "mad"}, "label2id": {"sad": 0, "glad": 1, "mad": 2}}


@pytest.mark.parametrize(("model_class", "config", "train"), FAMILIES)
def test_text_classification(model_class: Any, config: Any, train: Any, tmp_path: Path) -> None:
    tokenizer = train()
    model = save(model_class(config(num_labels=3, **LABELS, **sizes(tokenizer))), tokenizer, tmp_path)
    classify = pipeline("text-classification", model=str(tmp_path), top_k=None)
    alone = [{row["label"]: row["score"] for row in classify([text])[0]} for text in CORPUS[:3]]
    for text, found in zip(CORPUS[:3], alone, strict=True):
        expected = scores(model, tokenizer(text, return_tensors="pt"))[0].softmax(-1).tolist()
        assert [found[label] for label in LABELS["label2id"]] == pytest.approx(expected, rel=1e-4)
    together = [{row["label"]: row["score"] for row in rows} for rows in classify(CORPUS[:3], batch_size=3)]
    for batched, single in zip(together, alone, strict=True):
        assert batched == pytest.approx(single, rel=1e-4)


@pytest.mark.parametrize(
    ("model_class", "config"),
    [
        (qkv_models.QkvEncoderForTokenClassification, tiny.encoder),
        (qkv_models.QkvDecoderForTokenClassification, tiny.decoder),
    ],
)
def test_token_classification(model_class: Any, config: Any, tmp_path: Path) -> None:
    tokenizer = wordpiece()
    names = {0: "O", 1: "B-WORD", 2: "I-WORD"}
    model = save(model_class(config(id2label=names, **sizes(tokenizer))), tokenizer, tmp_path)
    tag = pipeline("token-classification", model=str(tmp_path), ignore_labels=[])
    text = CORPUS[0]
    inputs = tokenizer(text, return_tensors="pt", return_special_tokens_mask=True, return_offsets_mapping=True)
    special, offsets = inputs.pop("special_tokens_mask")[0], inputs.pop("offset_mapping")[0]
    best = scores(model, inputs)[0].softmax(-1).max(-1)
    found = tag(text)
    real = [index for index in range(len(special)) if not special[index]]
    assert [row["index"] for row in found] == real
    assert [row["entity"] for row in found] == [names[int(best.indices[index])] for index in real]
    assert [row["score"] for row in found] == pytest.approx([float(best.values[index]) for index in real], rel=1e-4)
    assert [(row["start"], row["end"]) for row in found] == [tuple(offsets[index].tolist()) for index in real]
    groups = pipeline("token-classification", model=str(tmp_path), aggregation_strategy="simple")(text)
    assert all(row["word"] for row in groups)


def test_text_generation(tmp_path: Path) -> None:
    tokenizer = byte_level()
    tokenizer.padding_side = "left"
    model = save(qkv_models.QkvDecoderForCausalLM(tiny.decoder("llama", **sizes(tokenizer))), tokenizer, tmp_path)
    generate = pipeline("text-generation", model=str(tmp_path))
    options = {"max_new_tokens": 6, "do_sample": False}
    prompts = ["Every layer", "A transformer stacks attention"]
    for prompt, written in zip(prompts, generate(prompts, batch_size=2, **options), strict=True):
        tokens = model.generate(**tokenizer(prompt, return_tensors="pt"), **options)[0]
        assert written[0]["generated_text"] == tokenizer.decode(tokens, skip_special_tokens=True)
        assert written[0]["generated_text"].startswith(prompt)
    several = generate(prompts[0], max_new_tokens=4, num_beams=2, num_return_sequences=2, return_full_text=False)
    assert len(several) == 2


@pytest.mark.parametrize(
    ("model_class", "config", "train"),
    [
        (qkv_models.QkvEncoderModel, tiny.encoder, wordpiece),
        (qkv_models.QkvDecoderModel, tiny.decoder, byte_level),
        # Any head's folder serves: the base model is read out of it.
        (qkv_models.QkvEncoderForMaskedLM, tiny.encoder, wordpiece),
    ],
)
def test_feature_extraction(model_class: Any, config: Any, train: Any, tmp_path: Path) -> None:
    tokenizer = train()
    model = save(model_class(config(**sizes(tokenizer))), tokenizer, tmp_path)
    extract = pipeline("feature-extraction", model=str(tmp_path))
    with torch.no_grad():
        expected = model.base_model(**tokenizer(CORPUS[1], return_tensors="pt")).last_hidden_state
    assert np.allclose(np.array(extract(CORPUS[1])), expected.numpy(), atol=1e-4)


def test_zero_shot_classification(tmp_path: Path) -> None:
    tokenizer = wordpiece()
    names = {0: "contradiction", 1: "neutral", 2: "entailment"}
    config = tiny.encoder(id2label=names, label2id={name: index for index, name in names.items()}, **sizes(tokenizer))
    model = save(qkv_models.QkvEncoderForSequenceClassification(config), tokenizer, tmp_path)
    judge = pipeline("zero-shot-classification", model=str(tmp_path))
    subjects = ["words", "layers"]
    found = judge(CORPUS[1], candidate_labels=subjects)
    pairs = tokenizer(
        [CORPUS[1]] * 2, [f"This example is {word}." for word in subjects], return_tensors="pt", padding=True
    )
    expected = scores(model, pairs)[:, 2].softmax(-1)
    assert dict(zip(found["labels"], found["scores"], strict=True)) == pytest.approx(
        dict(zip(subjects, expected.tolist(), strict=True)), rel=1e-4
    )


def pictures() -> list[Image.Image]:
    noise = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    return [Image.fromarray(noise), Image.fromarray(noise[..., 0]).resize((9, 50))]


@pytest.mark.parametrize("kind", tiny.KINDS["image_encoder"])
def test_image_classification(kind: str, tmp_path: Path) -> None:
    processor = ViTImageProcessorPil(size={"height": 12, "width": 16})
    config = tiny.image_encoder(kind, id2label={0: "cat", 1: "dog", 2: "emu"})
    model = save(qkv_models.QkvImageEncoderForImageClassification(config), processor, tmp_path)
    assert type(AutoImageProcessor.from_pretrained(tmp_path)) is ViTImageProcessorPil
    classify = pipeline("image-classification", model=str(tmp_path), top_k=3)
    # Of any size and mode: the processor makes them what the model reads.
    for picture, rows in zip(pictures(), classify(pictures()), strict=True):
        pixels = processor(picture.convert("RGB"), return_tensors="pt")
        expected = scores(model, pixels)[0].softmax(-1).tolist()
        found = {row["label"]: row["score"] for row in rows}
        assert [found[config.id2label[index]] for index in range(3)] == pytest.approx(expected, rel=1e-4)


# Texts and images -----------------------------------------------------------------------------------------------------


def clip_processor() -> CLIPProcessor:
    """transformers' own: pairs of bytes merged inside words that end with </w>, and images without torchvision."""
    untrained = CLIPTokenizer().backend_tokenizer
    letters = " ".join(map(chr, range(33, 127)))  # each inside a word and as its end
    special = ["<|startoftext|>", "<|endoftext|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=special, initial_alphabet=alphabet, end_of_word_suffix="</w>"
    )
    untrained.train_from_iterator([*CORPUS, letters], trainer)
    model = json.loads(untrained.to_str())["model"]
    tokenizer = CLIPTokenizer(model["vocab"], list(map(tuple, model["merges"])), model_max_length=48)
    images = CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size={"height": 12, "width": 16})
    return CLIPProcessor(images, tokenizer)


SUBJECTS = ["a word", "a layer", "a sentence"]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dual encoder and its processor."""
    folder, processor = tmp_path_factory.mktemp("clip"), clip_processor()
    ids = {name: getattr(processor.tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    texts = {"vocab_size": len(processor.tokenizer), "max_position_embeddings": 48, **ids}
    save(qkv_models.QkvDualEncoderModel(tiny.dual_encoder(text_config=texts)), processor, folder)
    return folder


@pytest.mark.parametrize("picture", pictures(), ids=["colours", "grey"])
def test_zero_shot_image_classification(picture: Image.Image, clip: Path) -> None:
    processor = AutoProcessor.from_pretrained(clip)
    assert type(processor) is CLIPProcessor and type(processor.image_processor) is CLIPImageProcessorPil
    model = AutoModelForZeroShotImageClassification.from_pretrained(clip)
    choose = pipeline("zero-shot-image-classification", model=str(clip))
    texts = [f"This is a photo of {subject}." for subject in SUBJECTS]
    inputs = processor(text=texts, images=picture.convert("RGB"), padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = model(**inputs).logits_per_image[0].softmax(-1).tolist()
    assert len(set(expected)) == 3
    found = {row["label"]: row["score"] for row in choose(picture, candidate_labels=SUBJECTS)}
    assert [found[subject] for subject in SUBJECTS] == pytest.approx(expected, rel=1e-4)


# Objects in images ----------------------------------------------------------------------------------------------------


def detr_processor(**options: Any) -> DetrImageProcessorPil:
    """transformers' own, without torchvision."""
    return DetrImageProcessorPil(size={"shortest_edge": 24, "longest_edge": 40}, do_convert_rgb=True, **options)


@pytest.fixture(scope="module")
def detr(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a detector and its processor."""
    folder = tmp_path_factory.mktemp("detr")
    torch.manual_seed(0)
    config = tiny.detector(encoder={"position": "sinusoidal_2d"}, num_queries=9)
    save(tiny.jitter(qkv_models.QkvDetectionForObjectDetection(config)), detr_processor(), folder)
    return folder


@pytest.mark.parametrize("picture", pictures(), ids=["colours", "grey"])
def test_object_detection(picture: Image.Image, detr: Path) -> None:
    model = AutoModelForObjectDetection.from_pretrained(detr)
    find = pipeline("object-detection", model=str(detr), threshold=0.0)
    processor = AutoImageProcessor.from_pretrained(detr)
    assert type(find.image_processor) is type(processor) is DetrImageProcessorPil
    with torch.no_grad():
        output = model(**processor(picture.convert("RGB"), return_tensors="pt"))
    size = torch.tensor([picture.size[::-1]])
    expected = processor.post_process_object_detection(output, threshold=0.0, target_sizes=size)[0]
    found = find(picture)
    assert [row["score"] for row in found] == pytest.approx(expected["scores"].tolist(), rel=1e-4)
    assert [row["label"] for row in found] == [model.config.id2label[int(label)] for label in expected["labels"]]
    assert [list(row["box"].values()) for row in found] == expected["boxes"].int().tolist()
    assert len(found) > 2


def test_several_pictures_are_seen_in_one_batch_as_one_by_one(detr: Path) -> None:
    find = pipeline("object-detection", model=str(detr), threshold=0.0)
    both = [pictures()[0], pictures()[0].rotate(180)]
    for together, picture in zip(find(both, batch_size=2), both, strict=True):
        alone = find(picture)
        assert [row["box"] for row in together] == [row["box"] for row in alone]
        assert [row["score"] for row in together] == pytest.approx([row["score"] for row in alone], rel=1e-4)


# Sound ---------------------------------------------------------------------------------------------------------------

LETTERS = {"<pad>": 0, "<unk>": 1, "|": 2, **{letter: index for index, letter in enumerate("abcdefgh", start=3)}}


def recorded(seconds: float = 3.0) -> dict[str, Any]:
    noise = np.random.RandomState(0).randn(int(16_000 * seconds)).astype(np.float32)
    return {"raw": 0.1 * noise, "sampling_rate": 16_000}


def recording(folder: Path) -> Path:
    """The same as a file of 16-bit numbers."""
    with wave.open(str(folder / "speech.wav"), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", "not compressed"))
        file.writeframes((recorded()["raw"] * 32768).astype("<i2").tobytes())
    return folder / "speech.wav"


def feature_extractor() -> Speech2TextFeatureExtractor:
    return Speech2TextFeatureExtractor(feature_size=6, num_mel_bins=6)


def ctc_model(tmp_path: Path) -> tuple[PreTrainedModel, Any]:
    (tmp_path / "letters.json").write_text(json.dumps(LETTERS))
    tokenizer = Wav2Vec2CTCTokenizer(str(tmp_path / "letters.json"))
    config = tiny.audio_encoder(vocab_size=len(LETTERS), pad_token_id=0, bos_token_id=None, eos_token_id=None)
    model = save(qkv_models.QkvAudioEncoderForCTC(config), tokenizer, tmp_path / "ctc")
    feature_extractor().save_pretrained(tmp_path / "ctc")
    return model, tokenizer


def test_speech_is_labelled(tmp_path: Path) -> None:
    model, tokenizer = ctc_model(tmp_path)
    transcribe = pipeline("automatic-speech-recognition", model=str(tmp_path / "ctc"))
    assert transcribe.type == "ctc" and type(transcribe.feature_extractor) is Speech2TextFeatureExtractor
    sound = read_wav(recording(tmp_path))
    inputs = feature_extractor()(sound["raw"], sampling_rate=16_000, return_tensors="pt")
    expected = tokenizer.decode(scores(model, inputs)[0].argmax(-1))
    assert transcribe(dict(sound))["text"] == expected and len(set(expected)) > 4
    times = transcribe(dict(sound), return_timestamps="char")["chunks"]
    assert 0 <= times[0]["timestamp"][0] < times[-1]["timestamp"][1] <= 3.05
    pieces = transcribe(dict(sound), chunk_length_s=1.0, stride_length_s=0.2)["text"]
    assert 0.5 * len(expected) < len(pieces) < 2 * len(expected)
    with pytest.raises(ValueError, match="silent"):
        transcribe({"raw": np.zeros(16_000, np.float32), "sampling_rate": 16_000})


def test_long_speech_in_chunks_is_read_as_at_once_where_nothing_reaches_further(tmp_path: Path) -> None:
    (tmp_path / "letters.json").write_text(json.dumps(LETTERS))
    ids = {"vocab_size": len(LETTERS), "pad_token_id": 0, "bos_token_id": None, "eos_token_id": None}
    near = {"position": "none", "pattern": "sliding", "sliding_window": 2, "num_hidden_layers": 1}
    features = Speech2TextFeatureExtractor(feature_size=6, num_mel_bins=6, do_ceptral_normalize=False)
    save(qkv_models.QkvAudioEncoderForCTC(tiny.audio_encoder(**ids, **near)), features, tmp_path / "near")
    Wav2Vec2CTCTokenizer(str(tmp_path / "letters.json")).save_pretrained(tmp_path / "near")
    transcribe = pipeline("automatic-speech-recognition", model=str(tmp_path / "near"))
    whole, pieces = (
        transcribe(recorded(6.0))["text"],
        transcribe(recorded(6.0), chunk_length_s=2.0, stride_length_s=0.4)["text"],
    )
    assert SequenceMatcher(None, whole, pieces).ratio() > 0.95


@pytest.mark.parametrize("kind", ["speech", "plain"])
def test_speech_is_written_down(kind: str, tmp_path: Path) -> None:
    tokenizer = wordpiece()
    config = tiny.speech_encoder_decoder(
        kind, decoder_start_token_id=2, max_position_embeddings=200, **sizes(tokenizer)
    )
    features = feature_extractor() if kind == "speech" else WhisperFeatureExtractor(feature_size=6, chunk_length=3)
    model = save(qkv_models.QkvSpeechEncoderDecoderForSpeechSeq2Seq(config), tokenizer, tmp_path / "model")
    features.save_pretrained(tmp_path / "model")
    generate = pipeline("automatic-speech-recognition", model=str(tmp_path / "model"))
    assert generate.type == "seq2seq"
    sounds = [read_wav(recording(tmp_path)), recorded(1.1)]
    options = {"max_new_tokens": 6, "num_beams": 1}

    def generated(samples: Any) -> list[int]:
        inputs = features(samples, sampling_rate=16_000, return_tensors="pt", return_attention_mask=True)
        return list(model.generate(**inputs, **options)[0])

    for sound, answer in zip(sounds, generate([dict(sound) for sound in sounds], batch_size=2, **options), strict=True):
        assert answer["text"] == tokenizer.decode(generated(sound["raw"]), skip_special_tokens=True)
    parts = [token for second in np.split(sounds[0]["raw"], 3) for token in generated(second)]
    in_chunks = generate(dict(sounds[0]), chunk_length_s=1.0, stride_length_s=0.0, **options)["text"]
    assert in_chunks == tokenizer.decode(parts, skip_special_tokens=True)


def test_a_processor_of_whisper_is_loaded_whole(tmp_path: Path) -> None:
    tokenizer = WhisperTokenizer(vocab={"a": 0, "b": 1, "<|endoftext|>": 2}, merges=[])
    WhisperProcessor(WhisperFeatureExtractor(feature_size=6), tokenizer).save_pretrained(tmp_path)
    qkv_models.QkvSpeechEncoderDecoderForSpeechSeq2Seq(tiny.speech_encoder_decoder("plain")).save_pretrained(tmp_path)
    loaded = AutoProcessor.from_pretrained(tmp_path)
    assert type(loaded) is WhisperProcessor and loaded.feature_extractor.feature_size == 6
    assert type(AutoFeatureExtractor.from_pretrained(tmp_path)) is WhisperFeatureExtractor
