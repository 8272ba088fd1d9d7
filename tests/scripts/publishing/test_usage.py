"""The programs on the cards, as they stand there: run where qkv is not, they print what they print where it is."""

import ast
import contextlib
import io
import json
import re
import subprocess
import sys
import wave
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import client_models
import numpy as np
import pytest
from PIL import Image
from tokenizers.processors import TemplateProcessing
from transformers import (
    CLIPImageProcessorPil,
    CLIPProcessor,
    DetrImageProcessorPil,
    PreTrainedModel,
    Speech2TextFeatureExtractor,
    ViTImageProcessorPil,
)

import qkv
import tiny
from qkv.scripts.common.heads import HUB_TASKS
from qkv.scripts.publishing.card.card import make_card, plain_card
from qkv.scripts.publishing.export.folder import build_folder
from qkv.scripts.publishing.integrity.loading import clean_environment
from sampling import sampled

ROOT = Path(__file__).resolve().parents[3]
CARDS = ROOT / "model_cards"
RECORD = json.loads((CARDS / "digits" / "record.json").read_text())
SOUND = (np.random.RandomState(0).randn(12_000) * 3000).astype("<i2")
IMAGE = Image.fromarray((np.arange(64).reshape(8, 8) * 4).astype(np.uint8))
NUMBER = re.compile(r"-?\d+\.\d*(?:e-?\d+)?")
PROGRAM = re.compile(r"```python\n(.*?)```", re.DOTALL)
# One model of each class whose card has programs.
OTHERS = ("Pair", "Recurrent", "TextEncoder")
MODELS = {case.model_class.__name__: case for case in reversed(tiny.CASES) if not case.name.startswith(OTHERS)}
# Heads whose pipeline and Auto class give one label, token or text.
WORDED = ("SequenceClassification", "ImageClassification", "MaskedLM", "CausalLM", "SpeechSeq2Seq")
ANSWER = re.compile(r"'(?:label|token_str|generated_text|text)': ?'(.*?)'[,}]")
# The same models on cards of other kinds: of a record, of the native form, of a folder without a processor.
NATIVE = {"native": "QkvImageEncoderForImageClassification", "native text": "QkvDecoderForCausalLM"}
BARE = {f"{name}, bare": name for name in MODELS}
KINDS = {name: name for name in MODELS} | {"recorded": "QkvImageEncoderForImageClassification"} | NATIVE | BARE


def processors(model: PreTrainedModel) -> list[Any]:
    """What reads the inputs of a model: letters that end, images, sounds."""
    config = getattr(model.config, "encoder", model.config)
    letters = client_models.tokenizer(mask_token="@", model_input_names=["input_ids", "attention_mask"])
    if "vision_config" in model.config.sub_configs or model.config.is_encoder_decoder:  # some of which read the end
        letters.backend_tokenizer.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 3)])
    if "vision_config" in model.config.sub_configs:
        size = dict(zip(("height", "width"), model.config.vision_config.image_shape, strict=True))
        return [CLIPProcessor(CLIPImageProcessorPil(size=size, crop_size=size), letters)]
    if config.frontend == "patches":
        size = dict(zip(("height", "width"), config.image_shape, strict=True))
        return [ViTImageProcessorPil(size=size, do_convert_rgb=True)]
    if config.frontend == "feature_map":
        return [DetrImageProcessorPil(size={"shortest_edge": 24, "longest_edge": 40}, do_convert_rgb=True)]
    sounds = [Speech2TextFeatureExtractor(feature_size=6, num_mel_bins=6)] if config.frontend == "spectrogram" else []
    return [*sounds, letters]


@dataclass
class Card:
    """The programs of a card, and their prints where qkv is not, in a folder with a picture and a sound."""

    programs: list[str]
    printed: list[str]
    place: Path


def published(name: str, folder: Path) -> str:
    """The text of the card of a model that lies in a folder now, in which the folder has taken its name's place."""
    # Stock models drop no paths.
    model = MODELS[KINDS[name]].build(**({"drop_path_rate": 0.0} if name == "native" else {}))
    if name in NATIVE:
        qkv.to_transformers(model).save_pretrained(folder)
        for processor in processors(model):
            processor.save_pretrained(folder)
    else:
        build_folder(model, folder, processors=[] if name in BARE else processors(model))
    if name == "recorded":
        return (CARDS / "digits" / "card.md").read_text().replace("user/qkv-digits", str(folder))
    if name == "native":
        return str(make_card(RECORD, form="native")).replace("user/qkv-digits", str(folder))
    config = json.loads((folder / "config.json").read_text())
    form = "native" if name in NATIVE else "self-contained"
    card = plain_card(config, name="m", processor=name not in BARE, form=form)
    return str(card).replace("user/m", str(folder))


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
    programs = {name: PROGRAM.findall(text) for name, text in found.items()}
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
    return {name: Card(every, [next(printed) for _ in every], place) for name, every in programs.items()}


def printed_here(program: str) -> str:
    """The print of a program in this process, where the installed classes compute."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(program, "README.md", "exec"), {"__name__": "__main__"})
    return out.getvalue().strip()


@pytest.mark.parametrize("name", [*sampled([*MODELS, "recorded", *NATIVE], 50), *sampled(BARE, 34)])
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

    if len(card.printed) == 2 and MODELS[KINDS[name]].auto_class.endswith(WORDED):
        piped, asked = (each.replace(" ", "") for each in card.printed)
        assert ANSWER.search(piped)[1].removeprefix("T") in asked  # of the prompt, in which T is unknown


def test_every_head_is_used() -> None:
    assert {case.auto_class for case in MODELS.values()} == set(HUB_TASKS)


def recorded_programs(architecture: str, prompt: str) -> list[str]:
    case = MODELS[architecture]
    config = {**case.config().to_dict(), "auto_map": {case.auto_class: f"modeling.{architecture}"}}
    recipe = {**RECORD["recipe"], "architecture": architecture, "prompt": prompt}
    return PROGRAM.findall(str(make_card({**RECORD, "recipe": recipe, "config": config}, repo="user/asked")))


@pytest.mark.parametrize(
    ("architecture", "prompt", "words"),
    [
        ("QkvDecoderForCausalLM", 'Say "when", ŷ and {braces}', ['"Say \\"when\\", ŷ and {braces}"'] * 2),
        ("QkvDecoderForCausalLM", "", ['"The sky is blue."'] * 2),
        ("QkvEncoderForMaskedLM", "A {mask} is here.", ['"A {mask} is here.".format(mask='] * 2),
        (
            "QkvDualEncoderModel",
            "a red circle, a blue star",
            ['["a red circle", "a blue star"], hypothesis_template="{}")', '["a red circle", "a blue star"]\n'],
        ),
    ],
)
def test_programs_ask_about_the_recipes_prompt(architecture: str, prompt: str, words: list[str]) -> None:
    for program, word in zip(recorded_programs(architecture, prompt), words, strict=True):
        assert ast.parse(program) and word in program and (not prompt or "sky" not in program)
