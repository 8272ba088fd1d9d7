"""Published folders work for people without qkv: one fresh process loads every family, saves it, and loads it again."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from transformers import PreTrainedModel, ViTImageProcessorPil

import qkv
from qkv.scripts.publishing.export import build_folder
from qkv.scripts.publishing.reload import Found, Job, logits, reload

TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXT = {"input_ids": torch.arange(12).view(2, 6) + 3, "attention_mask": torch.tensor([[1] * 6, [0, 0, 1, 1, 1, 1]])}


def encoder() -> PreTrainedModel:
    return qkv.QkvEncoderForMaskedLM(qkv.presets.bert_base(vocab_size=20, **TINY))


def decoder() -> PreTrainedModel:
    return qkv.QkvDecoderForCausalLM(qkv.presets.llama(vocab_size=20, num_key_value_heads=2, **TINY))


def encoder_decoder() -> PreTrainedModel:
    return qkv.QkvEncoderDecoderForConditionalGeneration(qkv.presets.t5_small(vocab_size=20, head_dim=4, **TINY))


def vision() -> PreTrainedModel:
    config = qkv.QkvEncoderConfig(
        frontend="patches", image_size=8, patch_size=2, id2label={0: "a", 1: "b", 2: "c"}, **TINY
    )
    return qkv.QkvEncoderForImageClassification(config)


IMAGE = Image.fromarray((np.arange(64).reshape(8, 8) * 4).astype(np.uint8))
PROCESSOR = ViTImageProcessorPil(size={"height": 8, "width": 8}, do_convert_rgb=True)
FAMILIES: dict[str, tuple[Callable[[], PreTrainedModel], str, dict[str, Tensor]]] = {
    "encoder": (encoder, "AutoModelForMaskedLM", TEXT),
    "decoder": (decoder, "AutoModelForCausalLM", TEXT),
    "encoder_decoder": (encoder_decoder, "AutoModelForSeq2SeqLM", {**TEXT, "decoder_input_ids": TEXT["input_ids"]}),
    "vision": (vision, "AutoModelForImageClassification", dict(PROCESSOR(IMAGE, return_tensors="pt"))),
}


@dataclass
class Loaded:
    """What a fresh process made of a model's folder, beside the model itself."""

    model: PreTrainedModel
    found: Found
    folder: Path


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Loaded]:
    place = tmp_path_factory.mktemp("hub")
    IMAGE.save(place / "image.png")
    torch.manual_seed(0)
    models, jobs = {}, []
    for name, (build, auto_class, inputs) in FAMILIES.items():
        models[name] = jittered(build()).eval()
        image = name == "vision"
        folder = build_folder(models[name], place / name, processors=[PROCESSOR] if image else [])
        extra = {"pipeline": "image-classification", "example": place / "image.png"} if image else {}
        jobs.append(Job(folder, auto_class, inputs, again=True, **extra))
    found = reload(jobs)
    return {name: Loaded(models[name], answer, place / name) for name, answer in zip(models, found, strict=True)}


@torch.no_grad()
def jittered(model: PreTrainedModel) -> PreTrainedModel:
    """The model with every parameter moved, so that none can hide behind its initial value."""
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


@pytest.mark.parametrize("name", FAMILIES)
def test_a_stranger_gets_the_same_logits(loaded: dict[str, Loaded], name: str) -> None:
    inputs = FAMILIES[name][2]
    assert torch.equal(loaded[name].found.logits, logits(loaded[name].model, inputs))


def test_the_comparison_would_notice_another_model(loaded: dict[str, Loaded]) -> None:
    inputs = FAMILIES["decoder"][2]
    assert not torch.equal(loaded["decoder"].found.logits, logits(jittered(loaded["decoder"].model), inputs))


def test_the_pipeline_sees_in_an_image_what_the_model_sees(loaded: dict[str, Loaded]) -> None:
    vision = loaded["vision"]
    scores = vision.found.logits.softmax(-1)[0]
    best = vision.found.answer[0]
    assert best["label"] == vision.model.config.id2label[int(scores.argmax())]
    assert best["score"] == pytest.approx(scores.max().item(), abs=1e-5)


def test_a_folder_holds_no_code_of_other_families(loaded: dict[str, Loaded]) -> None:
    families = {name: {path.stem for path in loaded[name].folder.glob("modeling_*.py")} for name in loaded}
    assert families["decoder"] == {"modeling_decoder"}
    assert "modeling_encoder" in families["encoder"] and "modeling_decoder" not in families["encoder"]
    assert {"modeling_encoder", "modeling_decoder", "modeling_encoder_decoder"} <= families["encoder_decoder"]
