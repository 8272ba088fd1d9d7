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
    AutoModelForImageClassification,
    AutoModelForObjectDetection,
    AutoModelForZeroShotImageClassification,
    AutoProcessor,
    AutoTokenizer,
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
from errors import raises_sentence
from qkv.scripts.data.audio import read_wav
from qkv.scripts.data.image import read_image, unpadded_boxes
from sampling import sampled

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


def wordpiece() -> PreTrainedTokenizerFast:
    """BERT's: lower case, pieces inside words, [CLS] and [SEP] around."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=SIZE, special_tokens=SPECIAL))
    return finish(tokenizer, framed=True)


def bpe() -> PreTrainedTokenizerFast:
    """Pairs merged inside words."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=SIZE, special_tokens=SPECIAL))
    return finish(tokenizer, framed=True)


def byte_level() -> PreTrainedTokenizerFast:
    """GPT-2's: pairs of bytes merged, so nothing is unknown."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=SIZE + 200, special_tokens=SPECIAL, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return finish(tokenizer, framed=False)


def unigram() -> PreTrainedTokenizerFast:
    """T5's: the likeliest pieces, spaces a character of their own."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=SIZE, special_tokens=SPECIAL, unk_token="[UNK]")
    tokenizer.train_from_iterator(CORPUS, trainer)
    return finish(tokenizer, framed=True)


def finish(tokenizer: Tokenizer, *, framed: bool) -> PreTrainedTokenizerFast:
    names = dict(zip(("unk_token", "pad_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    if framed:
        ids = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
        )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="[SEP]", **names)
    fast.model_max_length = 48
    return fast


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


@pytest.mark.parametrize("train", [wordpiece, bpe, byte_level, unigram])
def test_tokenizers_come_back_as_they_were_saved(train: Any, tmp_path: Path) -> None:
    tokenizer = train()
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = "The decoder reads every naïve word."
    ids = loaded(text)["input_ids"]
    assert ids == tokenizer(text)["input_ids"] and loaded.unk_token_id not in ids
    written = loaded.decode(ids, skip_special_tokens=True)
    exact = {"wordpiece": "the decoder reads every naive word.", "bpe": None}.get(train.__name__, text)
    assert exact is None or written == exact
    pair = loaded("every word", "a sentence", return_tensors="pt", padding="max_length", max_length=40)
    assert pair["input_ids"].shape == (1, 40) and (pair["input_ids"][0, -1] == tokenizer.pad_token_id)


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
    (qkv_models.QkvEncoderForSequenceClassification, tiny.encoder, unigram),
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
    tokenizer = bpe()
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
    write = pipeline("text-generation", model=str(tmp_path))
    options = {"max_new_tokens": 6, "do_sample": False}
    prompts = ["Every layer", "A transformer stacks attention"]
    for prompt, written in zip(prompts, write(prompts, batch_size=2, **options), strict=True):
        tokens = model.generate(**tokenizer(prompt, return_tensors="pt"), **options)[0]
        assert written[0]["generated_text"] == tokenizer.decode(tokens, skip_special_tokens=True)
        assert written[0]["generated_text"].startswith(prompt)
    several = write(prompts[0], max_new_tokens=4, num_beams=2, num_return_sequences=2, return_full_text=False)
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


@pytest.mark.parametrize("kind", tiny.IMAGE_ENCODERS)
def test_image_classification(kind: str, tmp_path: Path) -> None:
    processor = ViTImageProcessorPil(size={"height": 12, "width": 16})
    config = tiny.image_encoder(kind, id2label={0: "cat", 1: "dog", 2: "emu"})
    model = save(qkv_models.QkvImageEncoderForImageClassification(config), processor, tmp_path)
    assert type(AutoImageProcessor.from_pretrained(tmp_path)) is ViTImageProcessorPil
    classify = pipeline("image-classification", model=str(tmp_path), top_k=3)
    # Of any size and mode: the processor makes them what the model reads.
    pictures = [Image.effect_noise((40, 30), 90).convert("RGB"), Image.linear_gradient("L").resize((9, 50))]
    for picture, rows in zip(pictures, classify(pictures), strict=True):
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
NOISE = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
FILES: dict[str, Image.Image] = {
    "colours.png": Image.fromarray(NOISE),
    "grey.png": Image.fromarray(NOISE[..., 0]),
    "palette.png": Image.fromarray(NOISE).quantize(16),
    "transparent.png": Image.fromarray(np.dstack((NOISE, NOISE[..., 0]))),
    "print.jpg": Image.fromarray(NOISE).convert("CMYK"),
    "point.png": Image.fromarray(NOISE[:1, :1]),
    "line.png": Image.fromarray(NOISE[:1]),
}


def with_pictures(folder: Path) -> Path:
    """The folder with pictures of every kind, an empty one and half of one."""
    for name, picture in FILES.items():
        picture.save(folder / name)
    (folder / "empty.png").write_bytes(b"")
    (folder / "cut.png").write_bytes((folder / "colours.png").read_bytes()[:900])
    return folder


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dual encoder and its processor, and files to look at."""
    folder, processor = tmp_path_factory.mktemp("clip"), clip_processor()
    ids = {name: getattr(processor.tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    texts = {"vocab_size": len(processor.tokenizer), "max_position_embeddings": 48, **ids}
    save(qkv_models.QkvDualEncoderModel(tiny.dual_encoder(text_config=texts)), processor, folder)
    return with_pictures(folder)


@pytest.mark.parametrize("file", FILES)
def test_zero_shot_image_classification(file: str, clip: Path) -> None:
    processor = AutoProcessor.from_pretrained(clip)
    assert type(processor) is CLIPProcessor and type(processor.image_processor) is CLIPImageProcessorPil
    model = AutoModelForZeroShotImageClassification.from_pretrained(clip)
    choose = pipeline("zero-shot-image-classification", model=str(clip))
    texts = [f"This is a photo of {subject}." for subject in SUBJECTS]
    picture = Image.open(clip / file).convert("RGB")
    inputs = processor(text=texts, images=picture, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = model(**inputs).logits_per_image[0].softmax(-1).tolist()
    assert len(set(expected)) == 3
    found = {row["label"]: row["score"] for row in choose(str(clip / file), candidate_labels=SUBJECTS)}
    assert [found[subject] for subject in SUBJECTS] == pytest.approx(expected, rel=1e-4)


# Classes of images in files ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a classifier and its processor, and files to look at."""
    folder = tmp_path_factory.mktemp("vit")
    processor = ViTImageProcessorPil(size={"height": 12, "width": 16})
    torch.manual_seed(0)
    save(qkv_models.QkvImageEncoderForImageClassification(tiny.image_encoder()), processor, folder)
    return with_pictures(folder)


@pytest.mark.parametrize("file", sampled(FILES, 3, 1))
def test_image_classification_of_a_file(file: str, vit: Path) -> None:
    model = AutoModelForImageClassification.from_pretrained(vit)
    picture = Image.open(vit / file).convert("RGB")
    expected = scores(model, AutoImageProcessor.from_pretrained(vit)(picture, return_tensors="pt"))[0].softmax(-1)
    found = {row["label"]: row["score"] for row in pipeline("image-classification", model=str(vit))(str(vit / file))}
    wanted = {model.config.id2label[index]: score for index, score in enumerate(expected.tolist())}
    assert found == pytest.approx(wanted, rel=1e-4) and len(set(found.values())) == 3


# Objects in images ----------------------------------------------------------------------------------------------------


def seer(**options: Any) -> DetrImageProcessorPil:
    """transformers' own, without torchvision."""
    return DetrImageProcessorPil(size={"shortest_edge": 24, "longest_edge": 40}, do_convert_rgb=True, **options)


@pytest.fixture(scope="module")
def detr(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a detector and its processor, and files to look at."""
    folder = tmp_path_factory.mktemp("detr")
    torch.manual_seed(0)
    config = tiny.detector(encoder={"position": "sinusoidal_2d"}, num_queries=9)
    save(tiny.jitter(qkv_models.QkvDetectionForObjectDetection(config)), seer(), folder)
    return with_pictures(folder)


@pytest.mark.parametrize("file", FILES)
def test_object_detection(file: str, detr: Path) -> None:
    model = AutoModelForObjectDetection.from_pretrained(detr)
    find = pipeline("object-detection", model=str(detr), threshold=0.0)
    processor = AutoImageProcessor.from_pretrained(detr)
    assert type(find.image_processor) is type(processor) is DetrImageProcessorPil
    picture = Image.open(detr / file).convert("RGB")
    with torch.no_grad():
        output = model(**processor(picture, return_tensors="pt"))
    size = torch.tensor([picture.size[::-1]])
    expected = processor.post_process_object_detection(output, threshold=0.0, target_sizes=size)[0]
    found = find(str(detr / file))
    assert [row["score"] for row in found] == pytest.approx(expected["scores"].tolist(), rel=1e-4)
    assert [row["label"] for row in found] == [model.config.id2label[int(label)] for label in expected["labels"]]
    assert [list(row["box"].values()) for row in found] == expected["boxes"].int().tolist()
    assert len(found) > 2


def test_several_pictures_are_seen_in_one_batch_as_one_by_one(detr: Path) -> None:
    find = pipeline("object-detection", model=str(detr), threshold=0.0)
    files = [str(detr / name) for name in ("colours.png", "grey.png")]
    for together, file in zip(find(files, batch_size=2), files, strict=True):
        alone = find(file)
        assert [row["box"] for row in together] == [row["box"] for row in alone]
        assert [row["score"] for row in together] == pytest.approx([row["score"] for row in alone], rel=1e-4)


def test_the_image_processor_of_detectors_is_resize_normalise_and_pad() -> None:
    """Fifty random images of any shape with boxes, two in a batch, worked out with Pillow and numpy alone."""
    processor, random = seer(), np.random.default_rng(1)
    mean, std = np.array(processor.image_mean), np.array(processor.image_std)
    for _ in range(25):
        images, notes, expected = [], [], []
        for _ in range(2):
            height, width = (int(side) for side in random.integers(8, 60, 2))
            images.append(Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8)))
            left, top, wide, high = (float(side) for side in random.uniform(1, 4, 4))
            box = {"bbox": [left, top, wide, high], "category_id": 2, "area": wide * high, "iscrowd": 0}
            notes.append({"image_id": 1, "annotations": [box]})
            center = [(left + wide / 2) / width, (top + high / 2) / height, wide / width, high / height]
            expected.append((resized(images[-1]), center))
        batch = unpadded_boxes(processor(images, annotations=notes, return_tensors="pt"))
        for row, (picture, center) in enumerate(expected):
            seen = (np.asarray(picture) / 255 - mean) / std
            height, width = seen.shape[:2]
            pixels, mask = batch["pixel_values"][row], batch["pixel_mask"][row]
            assert np.allclose(pixels[:, :height, :width].permute(1, 2, 0), seen, atol=1e-5)
            assert not pixels[:, height:].any() and not pixels[:, :, width:].any()
            assert mask[:height, :width].all() and int(mask.sum()) == height * width
            assert batch["labels"][row]["boxes"][0].tolist() == pytest.approx(center, abs=1e-5)
            assert batch["labels"][row]["class_labels"].tolist() == [2]


def resized(image: Image.Image) -> Image.Image:
    """With a shorter side of 24, or a longer one of 40 where that would be longer; what has the right side stays."""
    width, height = image.size
    short, long = min(width, height), max(width, height)
    exact = 24 if long / short * 24 <= 40 else 40 * short / long
    side, other = round(exact), int(exact * long / short)
    if short == side:
        return image
    return image.resize((side, other) if width <= height else (other, side), Image.Resampling.BILINEAR)


# What each pipeline of images is asked: the fixture of its folder, and its options.
IMAGE_TASKS = {
    "zero-shot-image-classification": ("clip", {"candidate_labels": SUBJECTS}),
    "image-classification": ("vit", {}),
    "object-detection": ("detr", {"threshold": 0.0}),
}


@pytest.mark.parametrize("task", IMAGE_TASKS)
def test_grey_of_16_bits_is_grey_of_8(task: str, request: pytest.FixtureRequest) -> None:
    name, options = IMAGE_TASKS[task]
    folder = request.getfixturevalue(name)
    Image.fromarray(NOISE[..., 0].astype(np.uint16) * 257).save(folder / "deep.png")
    pictures = [read_image(folder / "deep.png"), str(folder / "grey.png"), str(folder / "deep.png")]
    look_at = pipeline(task, model=str(folder))
    read, expected, white = (look_at(picture, **options) for picture in pictures)
    assert read == expected != white


@pytest.mark.parametrize("file", ["empty.png", "cut.png"])
@pytest.mark.parametrize("task", IMAGE_TASKS)
def test_a_file_that_is_no_image_is_an_error(task: str, file: str, request: pytest.FixtureRequest) -> None:
    name, options = IMAGE_TASKS[task]
    folder = request.getfixturevalue(name)
    with raises_sentence(file):
        read_image(folder / file)
    with pytest.raises(OSError, match="image file"):
        pipeline(task, model=str(folder))(str(folder / file), **options)


# Sound ---------------------------------------------------------------------------------------------------------------

LETTERS = {"<pad>": 0, "<unk>": 1, "|": 2, **{letter: index for index, letter in enumerate("abcdefgh", start=3)}}


def spoken(seconds: float = 3.0) -> dict[str, Any]:
    noise = np.random.RandomState(0).randn(int(16_000 * seconds)).astype(np.float32)
    return {"raw": 0.1 * noise, "sampling_rate": 16_000}


def recording(folder: Path) -> Path:
    """The same as a file of 16-bit numbers."""
    with wave.open(str(folder / "speech.wav"), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", "not compressed"))
        file.writeframes((spoken()["raw"] * 32768).astype("<i2").tobytes())
    return folder / "speech.wav"


def extractor() -> Speech2TextFeatureExtractor:
    return Speech2TextFeatureExtractor(feature_size=6, num_mel_bins=6)


def hearing(tmp_path: Path) -> tuple[PreTrainedModel, Any]:
    (tmp_path / "letters.json").write_text(json.dumps(LETTERS))
    tokenizer = Wav2Vec2CTCTokenizer(str(tmp_path / "letters.json"))
    config = tiny.audio_encoder(vocab_size=len(LETTERS), pad_token_id=0, bos_token_id=None, eos_token_id=None)
    model = save(qkv_models.QkvAudioEncoderForCTC(config), tokenizer, tmp_path / "ctc")
    extractor().save_pretrained(tmp_path / "ctc")
    return model, tokenizer


def test_speech_is_labelled(tmp_path: Path) -> None:
    model, tokenizer = hearing(tmp_path)
    hear = pipeline("automatic-speech-recognition", model=str(tmp_path / "ctc"))
    assert hear.type == "ctc" and type(hear.feature_extractor) is Speech2TextFeatureExtractor
    sound = read_wav(recording(tmp_path))
    inputs = extractor()(sound["raw"], sampling_rate=16_000, return_tensors="pt")
    expected = tokenizer.decode(scores(model, inputs)[0].argmax(-1))
    assert hear(dict(sound))["text"] == expected and len(set(expected)) > 4
    times = hear(dict(sound), return_timestamps="char")["chunks"]
    assert 0 <= times[0]["timestamp"][0] < times[-1]["timestamp"][1] <= 3.05
    pieces = hear(dict(sound), chunk_length_s=1.0, stride_length_s=0.2)["text"]
    assert 0.5 * len(expected) < len(pieces) < 2 * len(expected)
    with pytest.raises(ValueError, match="silent"):
        hear({"raw": np.zeros(16_000, np.float32), "sampling_rate": 16_000})


def recordings(folder: Path) -> dict[str, Path]:
    """Noise of one second in files of several forms."""
    noise = np.random.default_rng(1).integers(1, 255, 11_025, dtype=np.uint8)
    forms = {
        "16 bits": (1, 2, 11_025, (noise.astype("<i2") - 128) * 256),
        "8 bits in stereo": (2, 1, 11_025, noise.repeat(2)),
        "silence": (1, 2, 16_000, np.zeros(16_000, "<i2")),
    }
    for name, (channels, width, rate, samples) in forms.items():
        with wave.open(str(folder / f"{name}.wav"), "wb") as file:
            file.setparams((channels, width, rate, 0, "NONE", "not compressed"))
            file.writeframes(samples.tobytes())
    (folder / "cut.wav").write_bytes((folder / "16 bits.wav").read_bytes()[:9000])
    (folder / "empty.wav").write_bytes(b"")
    return {path.stem: path for path in folder.glob("*.wav")}


@pytest.mark.parametrize("writes", [False, True], ids=["labels", "text"])
def test_recordings_of_every_form_are_heard_or_a_sentence_says_why_not(writes: bool, tmp_path: Path) -> None:
    place, files, options = tmp_path / "ctc", recordings(tmp_path), {}
    if writes:
        place, tokenizer, options = tmp_path / "text", wordpiece(), {"max_new_tokens": 6, "num_beams": 1}
        config = tiny.speech_encoder_decoder(
            "plain", decoder_start_token_id=2, max_position_embeddings=200, **sizes(tokenizer)
        )
        save(qkv_models.QkvSpeechEncoderDecoderForSpeechSeq2Seq(config), tokenizer, place)
        WhisperFeatureExtractor(feature_size=6, chunk_length=1).save_pretrained(place)
    else:
        hearing(tmp_path)
    hear = pipeline("automatic-speech-recognition", model=str(place))
    plain, other = (hear(read_wav(files[name]), **options)["text"] for name in ("16 bits", "8 bits in stereo"))
    assert plain == other and len(plain) > 4
    for name, sentence in {"cut": "holds 0.41 of 1.00 s", "empty": "empty.wav is empty"}.items():
        with pytest.raises(ValueError, match=sentence):
            hear(read_wav(files[name]), **options)
    if writes:  # whose features of silence are numbers like any other
        assert hear(read_wav(files["silence"]), **options)["text"] != plain
        return
    with pytest.raises(ValueError, match="silent"):
        hear(read_wav(files["silence"]))


def test_long_speech_in_chunks_is_read_as_at_once_where_nothing_reaches_further(tmp_path: Path) -> None:
    (tmp_path / "letters.json").write_text(json.dumps(LETTERS))
    ids = {"vocab_size": len(LETTERS), "pad_token_id": 0, "bos_token_id": None, "eos_token_id": None}
    near = {"position": "none", "pattern": "sliding", "sliding_window": 2, "num_hidden_layers": 1}
    reader = Speech2TextFeatureExtractor(feature_size=6, num_mel_bins=6, do_ceptral_normalize=False)
    save(qkv_models.QkvAudioEncoderForCTC(tiny.audio_encoder(**ids, **near)), reader, tmp_path / "near")
    Wav2Vec2CTCTokenizer(str(tmp_path / "letters.json")).save_pretrained(tmp_path / "near")
    hear = pipeline("automatic-speech-recognition", model=str(tmp_path / "near"))
    whole, pieces = hear(spoken(6.0))["text"], hear(spoken(6.0), chunk_length_s=2.0, stride_length_s=0.4)["text"]
    assert SequenceMatcher(None, whole, pieces).ratio() > 0.95


@pytest.mark.parametrize("kind", ["speech", "plain"])
def test_speech_is_written_down(kind: str, tmp_path: Path) -> None:
    tokenizer = wordpiece()
    config = tiny.speech_encoder_decoder(
        kind, decoder_start_token_id=2, max_position_embeddings=200, **sizes(tokenizer)
    )
    reader = extractor() if kind == "speech" else WhisperFeatureExtractor(feature_size=6, chunk_length=3)
    model = save(qkv_models.QkvSpeechEncoderDecoderForSpeechSeq2Seq(config), tokenizer, tmp_path / "model")
    reader.save_pretrained(tmp_path / "model")
    write = pipeline("automatic-speech-recognition", model=str(tmp_path / "model"))
    assert write.type == "seq2seq"
    sounds = [read_wav(recording(tmp_path)), spoken(1.1)]
    options = {"max_new_tokens": 6, "num_beams": 1}

    def written(samples: Any) -> list[int]:
        inputs = reader(samples, sampling_rate=16_000, return_tensors="pt", return_attention_mask=True)
        return list(model.generate(**inputs, **options)[0])

    for sound, answer in zip(sounds, write([dict(sound) for sound in sounds], batch_size=2, **options), strict=True):
        assert answer["text"] == tokenizer.decode(written(sound["raw"]), skip_special_tokens=True)
    parts = [token for second in np.split(sounds[0]["raw"], 3) for token in written(second)]
    in_chunks = write(dict(sounds[0]), chunk_length_s=1.0, stride_length_s=0.0, **options)["text"]
    assert in_chunks == tokenizer.decode(parts, skip_special_tokens=True)


def test_a_processor_of_whisper_is_loaded_whole(tmp_path: Path) -> None:
    tokenizer = WhisperTokenizer(vocab={"a": 0, "b": 1, "<|endoftext|>": 2}, merges=[])
    WhisperProcessor(WhisperFeatureExtractor(feature_size=6), tokenizer).save_pretrained(tmp_path)
    qkv_models.QkvSpeechEncoderDecoderForSpeechSeq2Seq(tiny.speech_encoder_decoder("plain")).save_pretrained(tmp_path)
    loaded = AutoProcessor.from_pretrained(tmp_path)
    assert type(loaded) is WhisperProcessor and loaded.feature_extractor.feature_size == 6
    assert type(AutoFeatureExtractor.from_pretrained(tmp_path)) is WhisperFeatureExtractor
