"""The programs on the cards, as they stand there: run where qkv is not, they print what the model says."""

import ast
import contextlib
import io
import json
import re
import subprocess
import sys
import wave
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from transformers import (
    CLIPImageProcessorPil,
    CLIPProcessor,
    DetrImageProcessorPil,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Speech2TextFeatureExtractor,
    ViTImageProcessorPil,
    WhisperConfig,
)

import qkv
from qkv.scripts.common.heads import HUB_TASKS
from qkv.scripts.publishing.card.card import make_card, plain_card
from qkv.scripts.publishing.card.usage import room
from qkv.scripts.publishing.export.folder import build_folder
from qkv.scripts.publishing.integrity.clean_process import clean_environment
from sampling import sampled

ROOT = Path(__file__).resolve().parents[3]
CARDS = ROOT / "model_cards"
RECORD = json.loads((CARDS / "digits" / "record.json").read_text())
TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "id2label": {0: "a", 1: "b", 2: "c"}}
WORDS = "[PAD] [UNK] [MASK] [EOS] The sky is blue . What ? a fish".split()
PIXELS = {"image_size": 8, "patch_size": 2}
SPECTROGRAM = {"num_mel_bins": 6, "position": "sinusoidal_t2t"}
SOUND = (np.random.RandomState(0).randn(12_000) * 3000).astype("<i2")
HEARER = Speech2TextFeatureExtractor(feature_size=6, num_mel_bins=6)
IMAGE = Image.fromarray((np.arange(64).reshape(8, 8) * 4).astype(np.uint8))
IMAGES = ViTImageProcessorPil(size={"height": 8, "width": 8}, do_convert_rgb=True)
SEER = DetrImageProcessorPil(size={"height": 8, "width": 8}, do_convert_rgb=True)
NUMBER = re.compile(r"-?\d+\.\d*(?:e-?\d+)?")
PROGRAM = re.compile(r"```python\n(.*?)```", re.DOTALL)


def words() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(WordLevel({word: index for index, word in enumerate(WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="$A", pair="$A $B", special_tokens=[])
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=["input_ids", "attention_mask"], **names
    )


WORD_READER = words()
TOKENS = {"vocab_size": len(WORDS)}
ENDING = {**TOKENS, "eos_token_id": 3, "decoder_start_token_id": 0, "max_position_embeddings": 30}
NO_LABELS = {name: value for name, value in TINY.items() if name != "id2label"}
BACKBONE = {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 12], "depths": [1, 1]}
FIELDS: dict[str, dict[str, Any]] = {
    "Encoder": {**TINY, **TOKENS},
    "Decoder": {**TINY, **TOKENS},
    "ImageEncoder": {**TINY, **PIXELS},
    "AudioEncoder": {**TINY, **TOKENS, **SPECTROGRAM},
    "EncoderDecoder": {**TINY, **ENDING},
    "SpeechEncoderDecoder": {**TINY, **ENDING, "encoder": SPECTROGRAM},
    "DualEncoder": {
        **NO_LABELS, "text_config": {**TOKENS, "eos_token_id": 3}, "vision_config": PIXELS, "projection_dim": 8,
    },
    "Detection": {**TINY, "num_queries": 5, "backbone_config": BACKBONE},
}  # fmt: skip


def paired() -> CLIPProcessor:
    """Words that end, and images."""
    tokenizer = words()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="$A [EOS]", special_tokens=[("[EOS]", 3)])
    size = {"height": 8, "width": 8}
    return CLIPProcessor(CLIPImageProcessorPil(size=size, crop_size=size), tokenizer)


READERS = {"patches": [IMAGES], "feature_map": [SEER], "tokens": [WORD_READER], "spectrogram": [HEARER, WORD_READER]}


def read(*texts: str) -> dict[str, Tensor]:
    return dict(WORD_READER(*texts or ("The sky is blue.",), return_tensors="pt"))


def best(model: PreTrainedModel, inputs: dict[str, Tensor]) -> Tensor:
    return model(**inputs).logits[0].argmax(-1)


def written(model: PreTrainedModel) -> str:
    tokens = model.generate(**read(), max_new_tokens=26 if model.config.is_encoder_decoder else 20, do_sample=False)
    return WORD_READER.decode(tokens[0], skip_special_tokens=True)


def span(model: PreTrainedModel) -> str:
    inputs = read("What is blue?", "The sky is blue.")
    outputs = model(**inputs)
    start, end = int(outputs.start_logits.argmax()), int(outputs.end_logits.argmax())
    return WORD_READER.decode(inputs["input_ids"][0, start : end + 1])


MASKED = read(f"The sky is {WORD_READER.mask_token}.")
PICTURE = dict(IMAGES(IMAGE, return_tensors="pt"))
HEARD = dict(HEARER(SOUND / np.float32(32768), sampling_rate=16_000, return_tensors="pt"))
# A head's family, class and fields.
Head = tuple[str, str, dict[str, Any]]
CONTACTS = {"contact_head": "attention", "position": "rope"}
MODELS: dict[str, Head] = {
    "AutoModelForCausalLM": ("Decoder", "ForCausalLM", {}),
    "AutoModelForSeq2SeqLM": ("EncoderDecoder", "ForConditionalGeneration", {}),
    "AutoModelForMaskedLM": ("Encoder", "ForMaskedLM", {}),
    "AutoModelForSequenceClassification": ("Encoder", "ForSequenceClassification", {}),
    "AutoModelForTokenClassification": ("Encoder", "ForTokenClassification", {}),
    "AutoModelForQuestionAnswering": ("Encoder", "ForQuestionAnswering", {}),
    "AutoModelForMultipleChoice": ("Encoder", "ForMultipleChoice", {}),
    "AutoModelForImageClassification": ("ImageEncoder", "ForImageClassification", {}),
    "AutoModelForMaskedImageModeling": ("ImageEncoder", "ForMaskedImageModeling", {"mask_token": True}),
    "AutoModelForZeroShotImageClassification": ("DualEncoder", "Model", {}),
    "AutoModelForObjectDetection": ("Detection", "ForObjectDetection", {}),
    "AutoModelForPreTraining": ("Encoder", "ForPreTraining", {}),
    "AutoModelForCTC": ("AudioEncoder", "ForCTC", {}),
    "AutoModelForSpeechSeq2Seq": ("SpeechEncoderDecoder", "ForSpeechSeq2Seq", {}),
    "AutoModel, sound": ("AudioEncoder", "Model", {}),
    "AutoModel, sound and words": ("SpeechEncoderDecoder", "Model", {}),
    "AutoModel": ("Encoder", "Model", {}),
    "AutoModel, contacts": ("Encoder", "ForContactPrediction", CONTACTS),
    "AutoModel, images": ("ImageEncoder", "Model", {}),
    "AutoModel, both": ("EncoderDecoder", "Model", {}),
    "AutoModelForTextEncoding": ("EncoderDecoder", "EncoderModel", {}),
    "AutoModel, places": ("Detection", "Model", {}),
}
# What the program that asks the model itself prints, said by the model in memory.
SAID: dict[str, Callable[[PreTrainedModel], str]] = {
    "AutoModelForCausalLM": written,
    "AutoModelForSeq2SeqLM": written,
    "AutoModelForMaskedLM": lambda model: WORD_READER.decode(best(model, MASKED)),
    "AutoModelForSequenceClassification": lambda model: model.config.id2label[int(best(model, read()))],
    "AutoModelForQuestionAnswering": span,
    "AutoModelForImageClassification": lambda model: model.config.id2label[int(best(model, PICTURE))],
    "AutoModelForCTC": lambda model: WORD_READER.decode(best(model, HEARD), skip_special_tokens=True),
}
# The same models on cards of other kinds: of a record, of the native form, of a folder without a processor.
NATIVE = {"native": "AutoModelForImageClassification", "native text": "AutoModelForCausalLM"}
BARE = {f"{name}, bare": name for name in MODELS}
KINDS = {name: name for name in MODELS} | {"recorded": "AutoModelForImageClassification"} | NATIVE | BARE


@dataclass
class Card:
    """A model, the programs of its card, and their prints where qkv is not, in a folder with a picture and a sound."""

    model: PreTrainedModel
    programs: list[str]
    printed: list[str]
    place: Path


@torch.no_grad()
def built(name: str) -> PreTrainedModel:
    family, head, fields = MODELS[name]
    config = getattr(qkv, f"Qkv{family}Config")(**FIELDS[family], **fields)
    model = getattr(qkv, f"Qkv{family}{head}")(config)
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.5)
    return model.eval()


def published(name: str, folder: Path) -> tuple[PreTrainedModel, str]:
    """A model that lies in a folder now, and the text of its card, in which the folder has taken its name's place."""
    torch.manual_seed(list(MODELS).index(KINDS[name]))
    model = built(KINDS[name])
    encoder_config = getattr(model.config, "encoder", model.config)
    readers = [paired()] if "vision_config" in model.config.sub_configs else READERS[encoder_config.frontend]
    if name in NATIVE:
        qkv.to_transformers(model).save_pretrained(folder)
        readers[0].save_pretrained(folder)
    else:
        build_folder(model, folder, processors=[] if name in BARE else readers)
    if name == "recorded":
        return model, (CARDS / "digits" / "card.md").read_text().replace("user/qkv-digits", str(folder))
    if name == "native":
        return model, str(make_card(RECORD, form="native")).replace("user/qkv-digits", str(folder))
    config = json.loads((folder / "config.json").read_text())
    form = "native" if name in NATIVE else "self-contained"
    card = plain_card(config, name="m", processor=name not in BARE, form=form)
    return model, str(card).replace("user/m", str(folder))


@pytest.fixture(scope="module")
def cards(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Card]:
    """The programs of every card that is asked for, run one after the other where only folders and a picture are."""
    own = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    chosen = {item.callspec.params.get("name") for item in own}
    place = tmp_path_factory.mktemp("cards")
    IMAGE.save(place / "image.png")
    with wave.open(str(place / "speech.wav"), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", "not compressed"))
        file.writeframes(SOUND.tobytes())
    found = {name: published(name, place / f"folder{index}") for index, name in enumerate(KINDS) if name in chosen}
    programs = {name: PROGRAM.findall(text) for name, (_, text) in found.items()}
    done = subprocess.run(
        [sys.executable, "-I", ROOT / "tests" / "support" / "card_programs.py"],
        input=json.dumps([program for every in programs.values() for program in every]),
        env=clean_environment(place),
        cwd=place,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    printed = iter(json.loads(done.stdout))
    return {
        name: Card(model, programs[name], [next(printed) for _ in programs[name]], place)
        for name, (model, _) in found.items()
    }


def printed_here(program: str) -> str:
    """The print of a program in this process, where the installed classes compute."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(program, "README.md", "exec"), {"__name__": "__main__"})
    return out.getvalue().strip()


@pytest.mark.parametrize("name", [*sampled([*MODELS, "recorded", *NATIVE], 5), *sampled(BARE, 5)])
def test_programs_print_the_same_without_qkv(
    cards: dict[str, Card], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = cards[name]
    monkeypatch.chdir(card.place)
    assert card.programs and all(card.printed)
    for program, printed in zip(card.programs, card.printed, strict=True):
        here = printed_here(program)
        assert NUMBER.sub("", printed) == NUMBER.sub("", here)
        assert [*map(float, NUMBER.findall(printed))] == pytest.approx([*map(float, NUMBER.findall(here))], abs=2e-4)


@torch.no_grad()
@pytest.mark.parametrize("name", SAID)
def test_programs_print_what_the_model_says(cards: dict[str, Card], name: str) -> None:
    assert cards[name].printed[-1] == SAID[name](cards[name].model)


def test_every_head_is_used() -> None:
    assert {name.partition(",")[0] for name in MODELS} == set(HUB_TASKS)


def recorded_programs(auto_class: str, prompt: str) -> list[str]:
    model = built(auto_class)
    architecture = type(model).__name__
    config = {**model.config.to_dict(), "auto_map": {auto_class: f"modeling.{architecture}"}}
    recipe = {**RECORD["recipe"], "architecture": architecture, "prompt": prompt}
    return PROGRAM.findall(str(make_card({**RECORD, "recipe": recipe, "config": config}, repo="user/asked")))


@pytest.mark.parametrize("prompt", ['Say "when", ŷ and {braces}', ""])
def test_programs_ask_about_the_recipes_prompt(prompt: str) -> None:
    nodes = [
        node for program in recorded_programs("AutoModelForCausalLM", prompt) for node in ast.walk(ast.parse(program))
    ]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    assert [text for text in texts if " " in text] == [prompt or "The sky is blue."] * 2


def test_a_mask_stands_where_the_prompt_says() -> None:
    programs = recorded_programs("AutoModelForMaskedLM", "A {mask} is here.")
    assert [program.count('"A {mask} is here.".format(mask=') for program in programs] == [1, 1]
    assert not any("sky" in program for program in programs)


def test_a_prompt_of_labels_stands_as_it_is() -> None:
    programs = recorded_programs("AutoModelForZeroShotImageClassification", "a red circle, a blue star")
    assert 'candidate_labels=["a red circle", "a blue star"], hypothesis_template="{}")' in programs[0]
    assert 'image, labels = Image.open("image.png"), ["a red circle", "a blue star"]\n' in programs[1]
    assert [type(ast.parse(program)) for program in programs] == [ast.Module] * 2


@pytest.mark.parametrize(
    ("config", "length"),
    [
        (qkv.presets.whisper_tiny(), 256),
        (qkv.presets.rnnsearch_50(), 256),
        (qkv.QkvEncoderDecoderConfig(**TINY, decoder={"max_position_embeddings": 48}), 44),
        (WhisperConfig(max_target_positions=100), 96),
        (qkv.presets.gpt2(), 20),
    ],
    ids=lambda value: getattr(value, "model_type", ""),
)
def test_what_ends_by_itself_has_room_to_end(config: Any, length: int) -> None:
    assert room(config.to_dict()) == length


def test_a_recording_that_the_program_would_mishear_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program, _ = recorded_programs("AutoModelForCTC", "")
    for channels, width in ((1, 1), (2, 2)):
        with wave.open("speech.wav", "wb") as file:
            file.setparams((channels, width, 11_025, 0, "NONE", "not compressed"))
            file.writeframes(bytes(400))
        with pytest.raises(AssertionError, match="save it with one channel of 16 bits"):
            exec(program.partition("predict = ")[0], {})
