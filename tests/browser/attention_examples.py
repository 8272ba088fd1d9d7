"""Views of tiny models whose weights follow from a seed, one of each kind of input."""

from collections.abc import Callable
from functools import cache

import torch

import qkv
import tiny
from families.attention_pages import HostileTokenizer
from qkv.scripts.attention_view.reading import Reading
from qkv.scripts.attention_view.view import AttentionView, view_of

WORDS = "the cat sat on a mat and saw its own small shadow there twice".split()


class Words:
    """A tokenizer of a few words, so that no file is needed."""

    def decode(self, ids: list[int], **options: object) -> str:
        return " ".join(WORDS[number % len(WORDS)] for number in ids)


def sharp(model: torch.nn.Module) -> torch.nn.Module:
    """The model with larger weights, whose attention is far from even."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.35 * torch.randn_like(parameter))
    return model.eval()


def translation() -> AttentionView:
    model = sharp(qkv.QkvEncoderDecoderForConditionalGeneration(tiny.encoder_decoder()))
    inputs = {"input_ids": torch.arange(5, 13)[None], "decoder_input_ids": torch.arange(20, 27)[None]}
    return view_of("translation", Reading(model, inputs, Words(), prompt=1, last=[30]), None, None)


def generation() -> AttentionView:
    model = sharp(qkv.QkvDecoderForCausalLM(tiny.decoder("llama")))
    reading = Reading(model, {"input_ids": torch.arange(5, 15)[None]}, Words(), prompt=4, last=[3])
    return view_of("generation", reading, None, None)


def image() -> AttentionView:
    return qkv.attend(sharp(qkv.QkvImageEncoderForImageClassification(tiny.image_encoder())), seeded(tiny.images))


def even() -> AttentionView:
    model = qkv.QkvImageEncoderForImageClassification(tiny.image_encoder(image_size=16, patch_size=2)).eval()
    for layer in model.base_model.layers:
        torch.nn.init.zeros_(layer.self_attn.q_proj.weight)
        torch.nn.init.zeros_(layer.self_attn.q_proj.bias)
    return qkv.attend(model, {"pixel_values": torch.rand(1, 3, 16, 16)})


def boxes() -> AttentionView:
    return qkv.attend(sharp(qkv.QkvDetectionForObjectDetection(tiny.detector())), seeded(tiny.padded_images))


def speech() -> AttentionView:
    model = sharp(qkv.QkvSpeechEncoderDecoderForSpeechSeq2Seq(tiny.speech_encoder_decoder()))
    inputs = {
        name: value
        for name, value in seeded(tiny.audio_with_targets).items()
        if "decoder" not in name and name != "labels"
    }
    inputs["decoder_input_ids"] = torch.arange(20, 27)[None].repeat(2, 1)
    reading = Reading(model, inputs, Words(), prompt=1, last=[30], seconds=1.2)
    return view_of("speech", reading, None, None)


def fold() -> AttentionView:
    model = sharp(qkv.QkvFoldingModel(tiny.folding(vocab_size=26)))
    return view_of("fold", Reading(model, {"input_ids": torch.arange(12)[None] % 20}, Words()), None, None)


def hostile() -> AttentionView:
    model = sharp(qkv.QkvDecoderForCausalLM(tiny.decoder()))
    reading = Reading(model, {"input_ids": torch.arange(10)[None]}, HostileTokenizer(), prompt=4, last=[0])
    view = view_of("</title><script>alert(2)</script>", reading, None, None)
    view.notes.append("<b>a note</b>")
    return view


def seeded(inputs: Callable[[], dict]) -> dict:
    torch.manual_seed(0)
    return inputs()


@cache
def example(name: str) -> AttentionView:
    """The view of a name, made once."""
    return globals()[name]()


# The views that each page has, in the order of its tabs.
TABS = {
    "translation": ["Tokens", "Alignment", "Generation", "Overview"],
    "generation": ["Tokens", "Matrix", "Generation", "Overview"],
    "image": ["Picture", "Matrix", "Overview"],
    "boxes": ["Picture", "Matrix", "Overview"],
    "speech": ["Sound", "Matrix", "Generation", "Overview"],
    "fold": ["Structure", "Tokens", "Matrix", "Overview"],
    "hostile": ["Tokens", "Matrix", "Generation", "Overview"],
}
