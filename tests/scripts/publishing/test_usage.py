"""The programs on the cards, as they stand there: run where qkv is not, they print what the model says."""

import ast
import json
import re
import subprocess
import sys
import wave
from collections.abc import Callable
from dataclasses import dataclass, field
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
from qkv.scripts.publishing.card.usage import PROTEIN, room
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


def generated(model: PreTrainedModel, inputs: dict[str, Tensor]) -> Tensor:
    """A few words more, or all that there is room for."""
    count = 26 if model.config.is_encoder_decoder else 20
    return model.generate(**inputs, max_new_tokens=count, do_sample=False)


def best(model: PreTrainedModel, inputs: dict[str, Tensor]) -> Tensor:
    return model(**inputs).logits[0].argmax(-1)


def label(model: PreTrainedModel, inputs: dict[str, Tensor]) -> str:
    return model.config.id2label[int(best(model, inputs))]


def span(model: PreTrainedModel) -> str:
    inputs = read("What is blue?", "The sky is blue.")
    outputs = model(**inputs)
    start, end = int(outputs.start_logits.argmax()), int(outputs.end_logits.argmax())
    return WORD_READER.decode(inputs["input_ids"][0, start : end + 1])


def choice(model: PreTrainedModel) -> str:
    ends = WORD_READER(["The sky is"] * 2, ["blue.", "a fish."], padding=True, return_tensors="pt")
    return str(int(best(model, {key: value[None] for key, value in ends.items()})))


def written(model: PreTrainedModel) -> str:
    return WORD_READER.decode(generated(model, read())[0], skip_special_tokens=True)


MASKED = read(f"The sky is {WORD_READER.mask_token}.")
SEEN = dict(SEER(IMAGE, return_tensors="pt"))
PICTURE = dict(IMAGES(IMAGE, return_tensors="pt"))
BOTH = {**read(), "decoder_input_ids": read()["input_ids"]}
CHOICES = ("a cat", "a dog")
HEARD = dict(HEARER(SOUND / np.float32(32768), sampling_rate=16_000, return_tensors="pt"))
REPEATED = {**HEARD, "decoder_input_ids": torch.tensor([[1, 2, 3]])}


def matched(model: PreTrainedModel, sentence: str = "{}") -> list[float]:
    texts = [sentence.format(choice) for choice in CHOICES]
    inputs = paired()(text=texts, images=IMAGE.convert("RGB"), padding=True, return_tensors="pt")
    return model(**inputs).logits_per_image[0].softmax(-1).tolist()


def dictated(model: PreTrainedModel) -> str:
    return WORD_READER.decode(generated(model, HEARD)[0], skip_special_tokens=True)


def objects(model: PreTrainedModel, threshold: float = 0.5) -> dict[str, Tensor]:
    return SEER.post_process_object_detection(model(**SEEN), threshold, torch.tensor([[8, 8]]))[0]


def labelled(model: PreTrainedModel) -> str:
    return WORD_READER.decode(best(model, HEARD), skip_special_tokens=True)


def scores(model: PreTrainedModel, inputs: dict[str, Tensor], place: Any = slice(None)) -> Tensor:
    return model(**inputs).logits[0][place].softmax(-1)


def check_labels(answer: Any, model: PreTrainedModel, expected: Tensor) -> None:
    expected = expected.reshape(-1, 3)
    answer = answer[: len(expected)]
    found = [item.get("entity", item.get("label")) for item in answer]
    assert found == [model.config.id2label[int(index)] for index in expected.argmax(-1)]
    assert [item["score"] for item in answer] == pytest.approx(expected.amax(-1).tolist(), abs=1e-5)


def check_masked(answer: Any, model: PreTrainedModel) -> None:
    expected = scores(model, MASKED, 3)
    assert answer[0]["token_str"] == WORD_READER.decode(expected.argmax())
    assert answer[0]["score"] == pytest.approx(expected.max().item(), abs=1e-5)


def check_states(answer: Any, model: PreTrainedModel, inputs: dict[str, Tensor]) -> None:
    assert torch.allclose(torch.tensor(answer), model(**inputs).last_hidden_state, atol=1e-5)


def check_written(answer: Any, model: PreTrainedModel) -> None:
    (found,) = answer
    tokens = generated(model, read())[0]
    # The prompt stays as it was typed; words lose the space before them.
    assert len(set(tokens[5:].tolist())) > 1
    assert found["generated_text"].replace(" ", "") == written(model).replace(" ", "")


def check_matched(answer: Any, model: PreTrainedModel) -> None:
    expected = dict(zip(CHOICES, matched(model, "This is a photo of {}."), strict=True))
    assert {item["label"]: item["score"] for item in answer} == pytest.approx(expected, abs=1e-5)


def check_dictated(answer: Any, model: PreTrainedModel) -> None:
    tokens = model.generate(**HEARD, max_new_tokens=26, num_beams=1)[0]
    assert answer["text"] == WORD_READER.decode(tokens, skip_special_tokens=True)


def check_labelled(answer: Any, model: PreTrainedModel) -> None:
    assert answer["text"] == WORD_READER.decode(best(model, HEARD))


def check_objects(answer: Any, model: PreTrainedModel) -> None:
    found = objects(model)
    assert len(found["scores"]) > 0
    assert [item["label"] for item in answer] == [model.config.id2label[int(label)] for label in found["labels"]]
    boxes = [list(item["box"].values()) for item in answer]
    assert boxes == found["boxes"].int().tolist()


TEXT, CHOSEN = torch.tensor([[1, 2, 3]]), torch.tensor([[[1, 2, 3], [1, 2, 4]]])
BLANK, SILENCE = torch.zeros(1, 3, 8, 8), torch.zeros(1, 16, 6)


@dataclass(frozen=True)
class Head:
    """A class and fields of its config, what its programs shall print from the model in memory, and its pipeline's check.

    `asked` is printed by the program that asks the model itself, `bare` by the one for a folder without a processor.
    """

    family: str
    name: str
    asked: Callable[[PreTrainedModel], str | Tensor | dict[str, Tensor]]
    check: Callable[[Any, PreTrainedModel], None] | None = None
    bare: Callable[[PreTrainedModel], Any] | None = None
    fields: dict[str, Any] = field(default_factory=dict)

    def build(self) -> PreTrainedModel:
        config = getattr(qkv, f"Qkv{self.family}Config")(**FIELDS[self.family], **self.fields)
        return jittered(getattr(qkv, f"Qkv{self.family}{self.name}")(config))


def shape_of(name: str, inputs: dict[str, Tensor]) -> Callable[[PreTrainedModel], str]:
    return lambda model: str(getattr(model(**inputs), name).shape)


def check_scores(inputs: dict[str, Tensor]) -> Callable[[Any, PreTrainedModel], None]:
    return lambda answer, model: check_labels(answer, model, scores(model, inputs))


def check_features(inputs: dict[str, Tensor]) -> Callable[[Any, PreTrainedModel], None]:
    return lambda answer, model: check_states(answer, model, inputs)


MODELS = {
    "AutoModelForCausalLM": Head(
        "Decoder", "ForCausalLM", written, check_written, bare=lambda model: generated(model, {"input_ids": TEXT})
    ),
    "AutoModelForSeq2SeqLM": Head("EncoderDecoder", "ForConditionalGeneration", written),
    "AutoModelForMaskedLM": Head(
        "Encoder", "ForMaskedLM", lambda model: WORD_READER.decode(best(model, MASKED)), check_masked
    ),
    "AutoModelForSequenceClassification": Head(
        "Encoder", "ForSequenceClassification", lambda model: label(model, read()), check_scores(read())
    ),
    "AutoModelForTokenClassification": Head(
        *("Encoder", "ForTokenClassification"),
        lambda model: str([model.config.id2label[int(x)] for x in best(model, read())]),
        check_scores(read()),
    ),
    "AutoModelForQuestionAnswering": Head("Encoder", "ForQuestionAnswering", span),
    "AutoModelForMultipleChoice": Head(
        "Encoder", "ForMultipleChoice", choice, bare=lambda model: model(input_ids=CHOSEN)[0].shape
    ),
    "AutoModelForImageClassification": Head(
        *("ImageEncoder", "ForImageClassification"),
        lambda model: label(model, PICTURE),
        check_scores(PICTURE),
        bare=lambda model: model(BLANK)[0].shape,
    ),
    "AutoModelForMaskedImageModeling": Head(
        "ImageEncoder", "ForMaskedImageModeling", shape_of("reconstruction", PICTURE), fields={"mask_token": True}
    ),
    "AutoModelForZeroShotImageClassification": Head(
        *("DualEncoder", "Model"),
        lambda model: str(dict(zip(CHOICES, matched(model), strict=True))),
        check_matched,
        bare=lambda model: torch.Size((1, 1)),
    ),
    "AutoModelForObjectDetection": Head(
        *("Detection", "ForObjectDetection", objects, check_objects),
        bare=lambda model: model(torch.zeros(1, 3, 64, 64))[0].shape,
    ),
    "AutoModelForPreTraining": Head("Encoder", "ForPreTraining", lambda model: str(model(**read())[0].shape)),
    "AutoModelForCTC": Head(
        "AudioEncoder", "ForCTC", labelled, check_labelled, bare=lambda model: model(SILENCE)[0].shape
    ),
    "AutoModelForSpeechSeq2Seq": Head("SpeechEncoderDecoder", "ForSpeechSeq2Seq", dictated, check_dictated),
    "AutoModel, sound": Head("AudioEncoder", "Model", shape_of("last_hidden_state", HEARD)),
    "AutoModel, sound and words": Head(
        *("SpeechEncoderDecoder", "Model", shape_of("last_hidden_state", REPEATED)),
        bare=lambda model: model(input_features=SILENCE, decoder_input_ids=TEXT)[0].shape,
    ),
    "AutoModel": Head("Encoder", "Model", shape_of("last_hidden_state", read()), check_features(read())),
    "AutoModel, contacts": Head(
        *("Encoder", "ForContactPrediction", lambda model: model(**read(PROTEIN)).logits[0].sigmoid()),
        bare=lambda model: model(TEXT).logits[0].sigmoid(),
        fields={"contact_head": "attention", "position": "rope"},
    ),
    "AutoModel, images": Head("ImageEncoder", "Model", shape_of("last_hidden_state", PICTURE), check_features(PICTURE)),
    "AutoModel, both": Head(
        *("EncoderDecoder", "Model", shape_of("last_hidden_state", BOTH)),
        bare=lambda model: model(input_ids=TEXT, decoder_input_ids=TEXT)[0].shape,
    ),
    # AutoModel loads it, too, and has a pipeline.
    "AutoModelForTextEncoding": Head(
        *("EncoderDecoder", "EncoderModel"), shape_of("last_hidden_state", read()), check_features(read())
    ),
    "AutoModel, places": Head("Detection", "Model", shape_of("last_hidden_state", SEEN), check_features(SEEN)),
}
# The same models on cards of other kinds: of a record, of the native form, of a folder without a processor.
NATIVE = {"native": "AutoModelForImageClassification", "native text": "AutoModelForCausalLM"}
BARE = {f"{name}, bare": name for name, head in MODELS.items() if head.bare}
KINDS = {name: name for name in MODELS} | {"recorded": "AutoModelForImageClassification"} | NATIVE | BARE


@dataclass
class Card:
    """A model, and what the programs of its card printed."""

    model: PreTrainedModel
    printed: list[str]


@torch.no_grad()
def jittered(model: PreTrainedModel) -> PreTrainedModel:
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.5)
    return model.eval()


def published(name: str, folder: Path) -> tuple[PreTrainedModel, str]:
    """A model that lies in a folder now, and the text of its card, in which the folder has taken its name's place."""
    torch.manual_seed(list(MODELS).index(KINDS[name]))
    model = MODELS[KINDS[name]].build()
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
    return {name: Card(model, [next(printed) for _ in programs[name]]) for name, (model, _) in found.items()}


@torch.no_grad()
@pytest.mark.parametrize("name", sampled([*MODELS, "recorded", *NATIVE], 5))
def test_programs_print_what_the_model_says(cards: dict[str, Card], name: str) -> None:
    card, head = cards[name], MODELS[KINDS[name]]
    *piped, asked = card.printed
    said = head.asked(card.model)
    if isinstance(said, dict | Tensor):
        # Tensors are printed with four digits.
        torch.testing.assert_close(eval(asked, {"tensor": torch.tensor}), said, rtol=0, atol=0.5e-4 + 1e-5)
    else:
        assert asked == said
    assert len(piped) == (head.check is not None)
    for answer in piped:
        head.check(eval(answer, {"np": np}), card.model)


@torch.no_grad()
@pytest.mark.parametrize("name", sampled(BARE, 5))
def test_programs_need_no_processor(cards: dict[str, Card], name: str) -> None:
    assert cards[name].printed == [str(MODELS[BARE[name]].bare(cards[name].model))]


def test_every_head_is_used() -> None:
    assert {name.partition(",")[0] for name in MODELS} == set(HUB_TASKS)


def recorded_programs(auto_class: str, prompt: str) -> list[str]:
    model = MODELS[auto_class].build()
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
