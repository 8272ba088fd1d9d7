"""Inputs of a model's forward for what a person tries, with names of its tokens, for its attention."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from qkv.scripts.prediction.generation import prepared
from qkv.scripts.prediction.predictor import THRESHOLD
from qkv.scripts.prediction.source import Source
from qkv.scripts.web_demo.requests import options_of, text_of

MOST_READ = 256  # tokens
Inputs = dict[str, Any]


@dataclass(frozen=True)
class Read:
    """The inputs of a forward for a map, and names of the tokens of each stack.

    Those of `decoder` are the tokens that are written. Objects below the threshold were not detected.
    """

    inputs: Inputs
    names: Mapping[str, Sequence[str]]
    pixels: Tensor | None = None  # (3, height, width)
    seconds: float | None = None  # that the positions of a recording span
    threshold: float = THRESHOLD


def pieces(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Return the text of each token."""
    return [tokenizer.decode([number]) or str(tokenizer.convert_ids_to_tokens(number)) for number in ids]


def most_read(source: Source) -> int:
    """Return how many tokens are read for a map."""
    return min(source.most_tokens or MOST_READ, MOST_READ)


def to_device(source: Source, inputs: Mapping[str, Any]) -> Inputs:
    """Put inputs where the model is."""
    return {name: value.to(source.model.device) for name, value in inputs.items()}


def of_text(source: Source, given: Any, request: Mapping[str, Any]) -> Read:
    """Read a text, or a pair of texts."""
    texts = [given["text"], given["text_pair"]] if isinstance(given, dict) else [given]
    texts = [" ".join(text) if isinstance(text, list) else text for text in texts]
    tokens = source.tokenizer(*texts, return_tensors="pt", truncation=True, max_length=most_read(source))
    return Read(to_device(source, tokens), {"self": pieces(source.tokenizer, tokens["input_ids"][0].tolist())})


def of_prompt(source: Source, given: str, request: Mapping[str, Any]) -> Read:
    """Read a prompt and what was written after it."""
    ids = prepared(source, [given], options_of(request))["input_ids"][0].tolist()
    ids += source.tokenizer(text_of(request, "written"), add_special_tokens=False)["input_ids"]
    ids = ids[: most_read(source)]
    inputs = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
    return Read(to_device(source, inputs), {"self": pieces(source.tokenizer, ids)})


def of_translation(source: Source, given: str, request: Mapping[str, Any]) -> Read:
    """Read a text and its translation."""
    tokens = {name: value[:, : most_read(source)] for name, value in prepared(source, [given], {}).items()}
    decoder, names = decoder_inputs(source, source.tokenizer, request)
    own = pieces(source.tokenizer, tokens["input_ids"][0].tolist())
    return Read(to_device(source, tokens | decoder), {"encoder": own, "decoder": names})


def decoder_inputs(source: Source, tokenizer: Any, request: Mapping[str, Any]) -> tuple[Inputs, list[str]]:
    """Return what a decoder reads when it writes a text, and the names of the tokens that it writes."""
    labels = tokenizer(text_target=text_of(request, "written"))["input_ids"][: most_read(source)]
    start = source.model.generation_config.decoder_start_token_id or source.model.config.decoder_start_token_id
    return {"decoder_input_ids": torch.tensor([[start, *labels[:-1]]])}, pieces(tokenizer, labels)


def of_image(source: Source, given: Image.Image, request: Mapping[str, Any]) -> Read:
    """Read an image."""
    inputs = source.pipeline.image_processor(images=given, return_tensors="pt")
    threshold = options_of(request).get("threshold", THRESHOLD)
    return Read(to_device(source, inputs), {}, pixels=inputs["pixel_values"][0], threshold=threshold)


def of_choice(source: Source, given: Image.Image, request: Mapping[str, Any]) -> Read:
    """Read an image, and the first of the texts to choose from."""
    image = source.pipeline.image_processor(images=given, return_tensors="pt")
    lines = [line.strip() for line in text_of(request, "labels").splitlines() if line.strip()]
    tokens = source.pipeline.tokenizer(lines[:1], return_tensors="pt", truncation=True, padding="max_length")
    tokens = {name: value for name, value in tokens.items() if name in ("input_ids", "attention_mask")}
    names = {"text": pieces(source.pipeline.tokenizer, tokens["input_ids"][0].tolist())}
    return Read(to_device(source, {**image, **tokens}), names, pixels=image["pixel_values"][0])


def of_recording(source: Source, given: Mapping[str, Any], request: Mapping[str, Any]) -> Read:
    """Read a recording, and the text that was written down."""
    extractor, tokenizer = source.pipeline.feature_extractor, source.pipeline.tokenizer
    inputs = extractor(given["raw"], sampling_rate=extractor.sampling_rate, return_tensors="pt")
    samples = max(len(given["raw"]), getattr(extractor, "n_samples", 0))  # Whisper's is padded to 30 s
    seconds = samples / extractor.sampling_rate
    if source.pipeline.type == "ctc":
        return Read(to_device(source, inputs), {}, seconds=seconds)
    decoder, names = decoder_inputs(source, tokenizer, request)
    return Read(to_device(source, {**inputs, **decoder}), {"decoder": names}, seconds=seconds)


READERS: dict[str, Callable[[Source, Any, Mapping[str, Any]], Read]] = {
    "text-classification": of_text,
    "token-classification": of_text,
    "fill-mask": of_text,
    "translation": of_translation,
    "text-generation": of_prompt,
    "image-classification": of_image,
    "object-detection": of_image,
    "zero-shot-image-classification": of_choice,
    "automatic-speech-recognition": of_recording,
}
